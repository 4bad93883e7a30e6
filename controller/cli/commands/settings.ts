import { existsSync } from 'node:fs'
import { Argument, Option } from 'commander'
import { type Changed, changedSettings } from '../../config/in-effect.js'
import { configurationFile, readConfiguration } from '../../config/load.js'
import { settings } from '../../config/settings.js'
import type { Command } from '../command.js'
import { explain } from '../explain.js'
import { OperatorError } from '../operator-error.js'
import { changeSettings } from '../state-directory/change-settings.js'
import { print } from '../terminal.js'
import { restart as startAgain } from './up/restart.js'

export const command: Command = {
  arguments: [new Argument('[changes...]', 'settings to write to krater.yaml, such as load_balancer.port=9877')],
  options: [new Option('--restart', 'restart the running processes, so that the changes take effect at once')],
  ignoresSettings: true,
  run: async (directory, given) => {
    const { changes, restart } = given as { changes: string[]; restart?: boolean }
    if (changes.length === 0) return printSettings(directory)
    if (!existsSync(directory))
      throw new OperatorError(`There is no instance in ${directory}. \`krater up\` makes one.`)
    print(`Wrote ${changeSettings(directory, changes).join(', ')} to ${configurationFile(directory)}.`)
    if (restart !== true) {
      print('Running processes keep their settings until a restart: krater down && krater up --detach')
      return
    }
    await startAgain(directory)
  },
}

/**
 * Prints every setting: its name in krater.yaml, its default, the value in effect if it differs and what sets it, its
 * description and its environment variable. When a setting is wrong or krater.yaml is closed to this user, the list
 * stays complete and standard error says why it shows the defaults alone.
 */
function printSettings(directory: string): void {
  const changed = new Map(changedIn(directory).map(one => [one.setting.name, one]))
  const blocks = settings.map(setting => {
    const { name, variable, default: byDefault, description } = setting
    const value = byDefault === undefined ? 'not set' : JSON.stringify(byDefault)
    const now = changed.get(name)
    return [
      `${name}   ${value}`,
      ...(now === undefined ? [] : [`  now: ${describe(now)}`]),
      ...(description === '' ? [] : [`  ${description}`]),
      `  ${variable}`,
    ].join('\n')
  })
  print(blocks.join('\n\n'))
}

function changedIn(directory: string): Changed[] {
  try {
    const file = configurationFile(directory)
    return changedSettings(readConfiguration(file), process.env, file)
  } catch (error) {
    process.stderr.write(
      `These are the defaults. The values in effect are unknown: ${explain(error, directory).text}\n\n`,
    )
    return []
  }
}

const describe = ({ setting, value, source }: Changed): string =>
  `${setting.secret ? 'set, but secret' : JSON.stringify(value)} (from ${source})`
