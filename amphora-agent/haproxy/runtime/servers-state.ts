/** One line of `show servers state`. */
export type ServerState = {
  backend: string
  name: string
  number: number
  address: string
  port: number
  weight: number
  operational: 'stopped' | 'starting' | 'running' | 'stopping'
  /** Bit field; see ADMIN_*. */
  admin: number
  checkConfigured: boolean
  /** HAProxy's number for the result of the last health check. */
  checkStatus: number
  /** Configured checks that were turned off. */
  checksOff: ('health' | 'agent')[]
  /** The fields of the line, for the server-state file. */
  words: string[]
}

/** Any bit that takes the server out of service: forced, inherited or resolution maintenance. */
const ADMIN_MAINTENANCE = 0x01 | 0x02 | 0x20
/** Drain, forced or inherited. */
const ADMIN_DRAIN = 0x08 | 0x10

const OPERATIONAL = ['stopped', 'starting', 'running', 'stopping'] as const
const COLUMNS = 25
const CHECK_CONFIGURED = 2
const CHECK_ENABLED = 4

const isOff = (check: number): boolean => (check & CHECK_CONFIGURED) !== 0 && (check & CHECK_ENABLED) === 0

/** Parses `show servers state`, version 1. Ignores other lines. */
export function parseServersState(text: string): ServerState[] {
  const states: ServerState[] = []
  for (const line of text.split('\n')) {
    const words = line.split(' ')
    if (words.length < COLUMNS || line.startsWith('#')) continue
    const operational = OPERATIONAL[Number(words[5])]
    if (operational === undefined) continue
    states.push({
      backend: words[1]!,
      number: Number(words[2]),
      name: words[3]!,
      address: words[4]!,
      operational,
      admin: Number(words[6]),
      weight: Number(words[7]),
      checkStatus: Number(words[10]),
      checkConfigured: (Number(words[13]) & CHECK_CONFIGURED) !== 0,
      checksOff: [
        ...(isOff(Number(words[13])) ? ['health' as const] : []),
        ...(isOff(Number(words[14])) ? ['agent' as const] : []),
      ],
      port: Number(words[18]),
      words,
    })
  }
  return states
}

export const inMaintenance = (state: ServerState): boolean => (state.admin & ADMIN_MAINTENANCE) !== 0
export const isDraining = (state: ServerState): boolean => (state.admin & ADMIN_DRAIN) !== 0 || state.weight === 0

/** Drained by a command, as opposed to weight 0. */
export const isDrainedByHand = ({ admin }: ServerState): boolean => (admin & ADMIN_DRAIN) !== 0
