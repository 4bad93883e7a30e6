/** Set for a `krater up` that reports its progress to its parent process. */
export const PROGRESS = 'KRATER_UP_PROGRESS'

/** What it reports. */
export type UpMessage = { kind: 'line'; text: string } | { kind: 'ready' } | { kind: 'failed'; text: string }

/** Reports to the parent, if there is one. A parent that has exited is not an error. */
export function tell(message: UpMessage): void {
  if (process.env[PROGRESS] === '1' && process.connected) process.send?.(message, () => undefined)
}
