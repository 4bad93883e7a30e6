/** True if the object is enabled and not under deletion. */
export const isDesired = (object: { change: string; adminStateUp: boolean }): boolean =>
  object.change !== 'delete' && object.adminStateUp

/** Sorts by id, so that the result does not depend on the order of rows. */
export const byId = (a: { id: string }, b: { id: string }): number => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)
