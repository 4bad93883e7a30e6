/** How far a rotation is. `total` is what there was to do when it was counted; writers may add to it. */
export type Progress = { done: number; total: number }

export type Report = (progress: Progress) => void

/** What a rotation has done. */
export type RotationResult = {
  done: number
  /** Values that do not open under their keys; they stay as they are, and so do their keys. */
  unreadable: number
}
