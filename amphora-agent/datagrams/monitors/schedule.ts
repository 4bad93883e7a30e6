/** Members that appear together start one after another, so that their first probes are no burst. */
const APART_MS = 1

/** When the first probe of a member begins, in milliseconds from now. @param position among those that appear now */
export const firstPause = (position: number): number => position * APART_MS

/** Where in each delay a member has its probes: members of a pool share them out evenly. Pure. */
export function phaseOf(subject: string, delayMs: number): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < subject.length; at++) hash = Math.imul(hash ^ subject.charCodeAt(at), 0x01000193)
  // The lower bits of FNV-1a depend on few characters.
  hash ^= hash >>> 15
  return (hash >>> 0) % delayMs
}

/**
 * When the next probe begins: at the member's phase, half a delay after the last one began at the earliest; or as soon as
 * the last one has ended, if it takes longer. All in milliseconds. Pure.
 */
export function nextStart(started: number, ended: number, phase: number, delayMs: number): number {
  const slot = phase + Math.ceil((started + delayMs / 2 - phase) / delayMs) * delayMs
  return Math.max(slot, ended)
}
