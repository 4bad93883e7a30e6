import { spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { constants } from 'node:os'
import { lastLines, logFile, openLog } from '../../host/log-files.js'
import { OperatorError } from '../../operator-error.js'
import { ensureStateDirectory } from '../../state-directory/instance.js'
import { print } from '../../terminal.js'
import { PROGRESS, type UpMessage } from './messages.js'

/** `krater up` reports every 30 s while it waits. */
const MAX_SILENT_SECONDS = 120

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

type Problem = { text: string; exitStatus: number }

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
  const problem = await new Promise<Problem | null>(resolve => {
    const limit = setTimeout(
      () => settle(`krater up reported nothing for ${MAX_SILENT_SECONDS} s. Its log: ${path}\n${lastLines(path, 5)}`),
      MAX_SILENT_SECONDS * 1000,
    )
    const settle = (text: string | null, exitStatus = 1) => {
      clearTimeout(limit)
      for (const signal of SIGNALS) process.off(signal, interrupt)
      resolve(text === null ? null : { text, exitStatus })
    }
    const interrupt = (signal: NodeJS.Signals) =>
      settle(
        'Interrupted. `krater up` continues in the background; `krater down` stops it.',
        128 + constants.signals[signal],
      )
    for (const signal of SIGNALS) process.on(signal, interrupt)
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
  if (problem !== null) throw new OperatorError(problem.text, problem.exitStatus)
}
