/** True for what is neither disabled nor under deletion. */
export const isDesired = (object: { change: string; adminStateUp: boolean }): boolean =>
  object.change !== 'delete' && object.adminStateUp

/** A fixed order, in whatever order rows come. */
export const byId = (a: { id: string }, b: { id: string }): number => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)
