import { settings } from '../../config/settings.js'
import type { Command } from '../command.js'

export const command: Command = { ignoresSettings: true, run: async () => printSettings() }

/** Prints every setting: its name in krater.yaml, its default, its description and its environment variable. */
export function printSettings(): void {
  const blocks = settings.map(({ name, variable, default: byDefault, description }) => {
    const value = byDefault === undefined ? 'not set' : JSON.stringify(byDefault)
    return [`${name}   ${value}`, ...(description === '' ? [] : [`  ${description}`]), `  ${variable}`].join('\n')
  })
  process.stdout.write(`${blocks.join('\n\n')}\n`)
}
