/** Flavor and zone of every machine of this driver: they are all alike, on the controller's host. */
export const PLACEMENT = { flavor: 'namespace', zone: 'local' } as const
