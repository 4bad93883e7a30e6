/** Address families, and what nftables calls them. */
export const FAMILIES = [4, 6] as const
export type Family = (typeof FAMILIES)[number]

/** In expressions. */
export const ip = (family: Family): string => (family === 4 ? 'ip' : 'ip6')
/** In types of sets. */
export const addressType = (family: Family): string => (family === 4 ? 'ipv4_addr' : 'ipv6_addr')
/** As a protocol. */
export const proto = (family: Family): string => (family === 4 ? 'ipv4' : 'ipv6')
