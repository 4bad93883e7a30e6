/** What the prober exchanges with one address. */
export type Exchange = {
  /** `sctp` sends an SCTP packet, `echo` an ICMP or ICMPv6 echo request. */
  kind: 'udp' | 'tcp' | 'sctp' | 'echo'
  address: string
  /** 0 for `echo`. */
  port: number
  limitMs: number
  /** What to send: a datagram, a packet, or what follows a TCP connect. Empty for TCP: nothing. */
  payload: Buffer
  /** The most to read of an answer. TCP ends earlier, with a line. */
  mostBytes: number
}

/** `connecting` until a TCP connection is open or a packet has been sent. */
type Stage = 'connecting' | 'open'

/** How an exchange ended. */
export type Outcome =
  /** TCP without a payload: empty, and means that the connection was opened. */
  | { end: 'answer'; bytes: Buffer }
  /** The limit passed. */
  | { end: 'silent'; stage: Stage }
  /** An ICMP error, a reset, or no route. `words` are the kernel's: `Connection refused`. */
  | { end: 'failed'; stage: Stage; words: string }
  /** It could not be tried, which says nothing about the other side. */
  | { end: 'unable'; words: string }

/** The prober's first line. */
export const READY = 'ready'

/** The longest line in either direction, in characters. */
export const MAX_LINE = 16_384

const hexOf = (bytes: Buffer): string => (bytes.length === 0 ? '-' : bytes.toString('hex'))

/** A request to the prober. Exchange 0 expects no answer. */
export const requestLine = (id: number, { kind, address, port, limitMs, payload, mostBytes }: Exchange): string =>
  `${id} ${kind} ${address.toLowerCase()} ${port} ${limitMs} ${hexOf(payload)} ${mostBytes}\n`

/** @returns null for a line that is none of the prober's */
export function parseOutcome(line: string): { id: number; outcome: Outcome } | null {
  const [, id = '', end, rest = ''] = /^(\d{1,15}) (answer|silent|failed|unable) ([ -~]+)$/.exec(line) ?? []
  const outcome = outcomeOf(end, rest)
  return outcome && { id: Number(id), outcome }
}

function outcomeOf(end: string | undefined, rest: string): Outcome | null {
  if (end === 'unable') return { end, words: rest }
  if (end === 'answer') {
    if (!/^(-|([0-9a-f]{2})+)$/.test(rest)) return null
    return { end, bytes: Buffer.from(rest === '-' ? '' : rest, 'hex') }
  }
  const [, stage, words = ''] = /^(connecting|open)(?: (.+))?$/.exec(rest) ?? []
  if (stage !== 'connecting' && stage !== 'open') return null
  if (end === 'failed') return { end, stage, words }
  return end === 'silent' && words === '' ? { end, stage } : null
}
