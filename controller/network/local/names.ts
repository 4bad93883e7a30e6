const digits = (id: string, count: number): string => id.replaceAll('-', '').toLowerCase().slice(0, count)

/** Names in the fabric. Those of interfaces have at most 15 characters. */
export const bridgeOf = (networkId: string): string => `br${digits(networkId, 12)}`
/** The fabric's end of a port's interface. */
export const interfaceOf = (portId: string): string => `p${digits(portId, 11)}`
/** The fabric's end of a router's leg. */
export const legOf = (portId: string): string => `r${digits(portId, 11)}`
export const isBridge = (name: string): boolean => /^br[0-9a-f]{12}$/.test(name)
