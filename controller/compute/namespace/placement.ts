/** Every machine of this driver has the same flavor and zone: it runs on the controller's host. */
export const PLACEMENT = { flavor: 'namespace', zone: 'local' } as const
