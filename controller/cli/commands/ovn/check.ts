import { Option } from 'commander'
import type { Command } from '../../command.js'
import { requireRoot } from '../../host/checks.js'
import { print } from '../../terminal.js'
import { countOf, notComparedLines, withSurvey, wordsOf } from './survey.js'

export const command: Command = {
  options: [new Option('--json', 'print JSON')],
  run: async (directory, { json }: { json?: boolean }) => {
    requireRoot()
    return withSurvey(directory, async ({ objects, findings, notCompared }) => {
      if (json) {
        const shown = findings.map(({ owner, differences }) => ({ object: owner, differences }))
        const passedOver = notCompared.map(({ owner, reason }) => ({ object: owner, reason }))
        print(JSON.stringify({ objects, notCompared: passedOver, findings: shown }, null, 2))
        return findings.length === 0 ? 0 : 1
      }
      for (const { owner, differences } of findings) {
        print(`${owner}:`)
        for (const difference of differences) print(`  ${wordsOf(difference)}`)
      }
      for (const line of notComparedLines(notCompared)) print(line)
      if (findings.length === 0) {
        print(`OVN has what the tables say: ${countOf(objects, 'object')}.`)
        return 0
      }
      print(
        `${countOf(findings.length, 'object')} of ${objects} differ. Krater repairs them; \`krater ovn sync\` does it now.`,
      )
      return 1
    })
  },
}
