/** Where the agent answers HAProxy's agent checks of members that are pinged, TCP on the loopback address. */
export const PING_PORT = 5515

/** What ends a question; nothing in it needs quoting, neither in a configuration file nor on the runtime socket. */
export const PING_QUESTION_END = '!'

/** One question of an agent check: whether a member answers pings. */
export type PingQuestion = {
  /** Who is asked about: answers are counted by it. */
  subject: string
  address: string
  timeoutSeconds: number
  /** Answers in a row until it is up, and silences in a row until it is down. */
  rise: number
  fall: number
}

/** The text that HAProxy sends (`agent-send`). */
export function pingQuestion({ subject, address, timeoutSeconds, rise, fall }: PingQuestion): string {
  return `${['ping', subject, address, timeoutSeconds, rise, fall].join(',')}${PING_QUESTION_END}`
}

/** @returns null for what pingQuestion did not make */
export function parsePingQuestion(text: string): PingQuestion | null {
  const match = /^ping,([\w.:-]{1,200}),([0-9a-fA-F.:]{2,45}),(\d{1,7}),(\d{1,3}),(\d{1,3})!$/.exec(text)
  if (match === null) return null
  const [, subject = '', address = '', ...numbers] = match
  const [timeoutSeconds = 0, rise = 0, fall = 0] = numbers.map(Number)
  if (timeoutSeconds < 1 || rise < 1 || fall < 1) return null
  return { subject, address, timeoutSeconds, rise, fall }
}
