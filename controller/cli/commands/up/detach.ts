import { spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { lastLines, logFile, openLog } from '../../host/log-files.js'
import { OperatorError } from '../../operator-error.js'
import { ensureStateDirectory } from '../../state-directory/instance.js'
import { print } from '../../terminal.js'
import { PROGRESS, type UpMessage } from './messages.js'

/** `krater up` reports every 30 s while it waits. */
const MAX_SILENT_SECONDS = 120

/**
 * Starts `krater up` as a process that outlives this one, shows its progress, and returns when everything works.
 * @throws OperatorError with the message of `krater up` when it fails
 */
export async function startInBackground(directory: string): Promise<void> {
  ensureStateDirectory(directory)
  const path = logFile(directory, 'up')
  const log = openLog(path)
  const child = spawn(process.execPath, [process.argv[1] ?? '', '--state-dir', directory, 'up'], {
    cwd: '/',
    detached: true,
    env: { ...process.env, [PROGRESS]: '1' },
    stdio: ['ignore', log, log, 'ipc'],
  })
  closeSync(log)
  const problem = await new Promise<string | null>(resolve => {
    const limit = setTimeout(
      () => resolve(`krater up reported nothing for ${MAX_SILENT_SECONDS} s. Its log: ${path}\n${lastLines(path, 5)}`),
      MAX_SILENT_SECONDS * 1000,
    )
    const settle = (problem: string | null) => {
      clearTimeout(limit)
      resolve(problem)
    }
    child.on('message', (message: UpMessage) => {
      limit.refresh()
      if (message.kind === 'line') print(message.text)
      if (message.kind === 'ready') settle(null)
      if (message.kind === 'failed') settle(message.text)
    })
    child.on('error', error => settle(`Cannot start krater up: ${error.message}`))
    child.on('exit', code => settle(`krater up exited with status ${code}. Its log: ${path}\n${lastLines(path, 5)}`))
  })
  if (child.connected) child.disconnect()
  child.unref()
  if (problem !== null) throw new OperatorError(problem)
}
