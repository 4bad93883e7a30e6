/**
 * The agent answers HAProxy's agent checks for members with PING health monitors here, by TCP on the loopback
 * address.
 */
export const PING_PORT = 5515

/** Terminates a question. Nothing in a question needs quoting, in a configuration file or on the runtime socket. */
export const PING_QUESTION_END = '!'

/** One query of an agent check: does a member reply to pings? */
export type PingQuestion = {
  /** The key by which consecutive results are counted. */
  subject: string
  address: string
  timeoutSeconds: number
  /** Consecutive replies until the member is up, and consecutive timeouts until it is down. */
  rise: number
  fall: number
}

/** The text that HAProxy sends (`agent-send`). */
export function pingQuestion({ subject, address, timeoutSeconds, rise, fall }: PingQuestion): string {
  return `${['ping', subject, address, timeoutSeconds, rise, fall].join(',')}${PING_QUESTION_END}`
}

/** @returns null for text that pingQuestion cannot produce */
export function parsePingQuestion(text: string): PingQuestion | null {
  const match = /^ping,([\w.:-]{1,200}),([0-9a-fA-F.:]{2,45}),(\d{1,7}),(\d{1,3}),(\d{1,3})!$/.exec(text)
  if (match === null) return null
  const [, subject = '', address = '', ...numbers] = match
  const [timeoutSeconds = 0, rise = 0, fall = 0] = numbers.map(Number)
  if (timeoutSeconds < 1 || rise < 1 || fall < 1) return null
  return { subject, address, timeoutSeconds, rise, fall }
}
