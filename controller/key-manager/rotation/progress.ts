/** Progress of a rotation. `total` was counted at the start; concurrent writers may add to it. */
export type Progress = { done: number; total: number }

export type Report = (progress: Progress) => void

export type RotationResult = {
  done: number
  /** Items that cannot be decrypted with their keys; both stay unchanged. */
  unreadable: number
}
