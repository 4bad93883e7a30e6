/** Sessions to close per round trip. */
const CLOSE_BATCH_SIZE = 100
/** Sessions to check again per round trip before closing them: few, so that little time passes in between. */
const CHECK_BATCH_SIZE = 20

/** One stream of `show sess`; `pointer` is its address in its worker's memory, which a later stream may reuse. */
export type Session = { pointer: string; backend: string; server: string }

/** Parses `show sess`. Ignores other lines. The server of a stream without one is `<none>`. */
export function parseSessions(text: string): Session[] {
  return text.split('\n').flatMap(line => {
    const [, pointer, backend, server] = /^(0x[0-9a-f]+): .* be=(\S+) srv=(\S+) /.exec(line) ?? []
    return pointer === undefined || backend === undefined || server === undefined ? [] : [{ pointer, backend, server }]
  })
}

/** Parses the answers to several `show sess 0x...`. Ignores sessions that have ended. */
function parseSessionDetails(text: string): Session[] {
  return text.split(/^(?=0x)/m).flatMap(output => {
    const [pointer] = /^0x[0-9a-f]+(?=: )/.exec(output) ?? []
    const [, backend] = /^ +backend=(\S+)/m.exec(output) ?? []
    const [, server] = /^ +server=(\S+)/m.exec(output) ?? []
    return pointer === undefined || backend === undefined || server === undefined ? [] : [{ pointer, backend, server }]
  })
}

/** How to send commands to one worker, and whether to stop early. */
type Closing = { command: (...commands: string[]) => Promise<string>; isAborted: () => boolean }

/** Closes whatever sessions are at their addresses. */
export async function closeSessions(closing: Closing, sessions: readonly Session[]): Promise<void> {
  for (const some of batches(sessions, CLOSE_BATCH_SIZE)) {
    if (closing.isAborted()) return
    await closing.command(...some.map(({ pointer }) => `shutdown session ${pointer}`))
  }
}

/**
 * Closes only sessions that are still the same: an address may have been reused for the next request of a remaining
 * client, to another server.
 */
export async function closeUnchanged(closing: Closing, sessions: readonly Session[]): Promise<void> {
  for (const some of batches(sessions, CHECK_BATCH_SIZE)) {
    if (closing.isAborted()) return
    const output = await closing.command(...some.map(({ pointer }) => `show sess ${pointer}`))
    const present = new Map(parseSessionDetails(output).map(session => [session.pointer, session]))
    const isUnchanged = ({ pointer, backend, server }: Session) => {
      const now = present.get(pointer)
      return now?.backend === backend && now.server === server
    }
    await closeSessions(closing, some.filter(isUnchanged))
  }
}

const batches = <T>(all: readonly T[], size: number): T[][] =>
  Array.from({ length: Math.ceil(all.length / size) }, (_, i) => all.slice(i * size, (i + 1) * size))
