export const familyOf = (address: string): 4 | 6 => (address.includes(':') ? 6 : 4)

/** The canonical form of RFC 5952 for IPv6, as the kernel and HAProxy print it; IPv4 has only one form. */
export function canonical(address: string): string {
  return address.includes(':') ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address
}

/** The network with its host bits cleared, as the kernel stores it. */
export function networkOf(cidr: string): string {
  const [address, prefix] = cidr.split('/') as [string, string]
  if (familyOf(address) === 4) {
    const bits = address.split('.').reduce((value, octet) => value * 256 + Number(octet), 0)
    const size = 2 ** (32 - Number(prefix))
    const first = Math.floor(bits / size) * size
    return `${[24, 16, 8, 0].map(shift => Math.floor(first / 2 ** shift) % 256).join('.')}/${prefix}`
  }
  const size = 1n << BigInt(128 - Number(prefix))
  const first = (toBits(address) / size) * size
  const groups = Array.from({ length: 8 }, (_, i) => ((first >> BigInt(16 * (7 - i))) & 0xffffn).toString(16))
  return `${canonical(groups.join(':'))}/${prefix}`
}

function toBits(address: string): bigint {
  const [left = '', right = ''] = canonical(address).split('::')
  const head = left.split(':').filter(Boolean)
  const tail = right.split(':').filter(Boolean)
  const groups = [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail]
  return groups.reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n)
}
