/** Set for a `krater up` that tells its progress to the process that started it. */
export const PROGRESS = 'KRATER_UP_PROGRESS'

/** What it tells. */
export type UpMessage = { kind: 'line'; text: string } | { kind: 'ready' } | { kind: 'failed'; text: string }

/** Sends when there is somebody to tell; one that has gone meanwhile is no fault. */
export function tell(message: UpMessage): void {
  if (process.env[PROGRESS] === '1' && process.connected) process.send?.(message, () => undefined)
}
