import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import { Argument } from 'commander'
import type { Command } from '../../command.js'
import { attachCommand, requireAttachment } from '../../host/attachments.js'
import { requireRoot } from '../../host/checks.js'
import { entering, exists } from '../../host/plug.js'
import { OperatorError } from '../../operator-error.js'

export const command: Command = {
  arguments: [new Argument('<name>', 'name of the attachment'), new Argument('<command...>', 'program and arguments')],
  run: async (directory, given) => {
    const { name, command: words } = given as { name: string; command: string[] }
    requireRoot()
    const record = requireAttachment(directory, name)
    const { place } = record
    if (!exists(place)) {
      throw new OperatorError(`The place of ${name} has ended. Attach it again: ${attachCommand(record)}`)
    }
    return runInForeground([...entering(place), ...words])
  },
}

/** Runs a program on the caller's terminal and passes signals on. @returns its exit status; 128 + n for signal n */
function runInForeground([program = '', ...args]: string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'inherit' })
    // The terminal sends Ctrl-C to both.
    process.on('SIGINT', () => undefined)
    process.on('SIGTERM', () => child.kill('SIGTERM'))
    child.on('error', reject)
    child.on('close', (code, signal) => resolve(code ?? 128 + (constants.signals[signal ?? 'SIGKILL'] ?? 0)))
  })
}
