import type { Command } from '../../command.js'
import { requireRoot } from '../../host/checks.js'
import { print } from '../../terminal.js'
import { repair } from './repair.js'
import { countOf, notComparedLines, withSurvey } from './survey.js'

export const command: Command = {
  run: async directory => {
    requireRoot()
    return withSurvey(directory, async ({ objects, findings, notCompared, northbound, tables }) => {
      for (const line of notComparedLines(notCompared)) print(line)
      if (findings.length === 0) {
        print(`OVN has what the tables say: ${countOf(objects, 'object')}. Nothing to repair.`)
        return 0
      }
      const owners = findings.map(({ owner }) => owner)
      const { late, refused } = await repair(northbound, tables, owners)
      for (const [owner, words] of refused) print(`${owner}: ${words}`)
      const others = late.filter(owner => !refused.has(owner))
      if (others.length > 0) print(`These still differ: ${others.join(', ')}. \`krater doctor\` looks for the cause.`)
      const repaired = findings.filter(({ owner }) => !late.includes(owner))
      const differences = repaired.flatMap(one => one.differences)
      print(`Repaired ${countOf(repaired.length, 'object')}: ${countOf(differences.length, 'difference')}.`)
      return late.length === 0 ? 0 : 1
    })
  },
}
