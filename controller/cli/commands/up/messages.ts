/** Environment variable that makes `krater up` report its progress to its parent process. */
export const PROGRESS = 'KRATER_UP_PROGRESS'

/** A progress report. */
export type UpMessage = { kind: 'line'; text: string } | { kind: 'ready' } | { kind: 'failed'; text: string }

/** Reports to the parent, if any. No error when the parent has exited. */
export function reportToParent(message: UpMessage): void {
  if (process.env[PROGRESS] === '1' && process.connected) process.send?.(message, () => undefined)
}
