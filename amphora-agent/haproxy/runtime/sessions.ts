/** Sessions that are closed in one round trip. */
const CLOSED_AT_ONCE = 100
/** Sessions that are looked at once more before they are closed: few, so that little time goes by in between. */
const CHECKED_AT_ONCE = 20

/** One stream of `show sess`; `pointer` is its place in the memory of its worker, which another one may have after its end. */
export type Session = { pointer: string; backend: string; server: string }

/** Reads `show sess`; lines of other kinds are left out, and streams that have no server yet have none by name. */
export function parseSessions(text: string): Session[] {
  return text.split('\n').flatMap(line => {
    const [, pointer, backend, server] = /^(0x[0-9a-f]+): .* be=(\S+) srv=(\S+) /.exec(line) ?? []
    return pointer === undefined || backend === undefined || server === undefined ? [] : [{ pointer, backend, server }]
  })
}

/** Reads the answers to any number of `show sess 0x...`; those that have ended are left out. */
function parseWholeSessions(text: string): Session[] {
  return text.split(/^(?=0x)/m).flatMap(words => {
    const [pointer] = /^0x[0-9a-f]+(?=: )/.exec(words) ?? []
    const [, backend] = /^ +backend=(\S+)/m.exec(words) ?? []
    const [, server] = /^ +server=(\S+)/m.exec(words) ?? []
    return pointer === undefined || backend === undefined || server === undefined ? [] : [{ pointer, backend, server }]
  })
}

/** How one worker is told, and when that is to end early. */
type Closing = { command: (...commands: string[]) => Promise<string>; isOver: () => boolean }

/** Closes whatever is at their places. */
export async function closeSessions(closing: Closing, sessions: readonly Session[]): Promise<void> {
  for (const some of batches(sessions, CLOSED_AT_ONCE)) {
    if (closing.isOver()) return
    await closing.command(...some.map(({ pointer }) => `shutdown session ${pointer}`))
  }
}

/** Closes those that still are at their places: a client who stays may have got one of them for its next request, to another server. */
export async function closeUnlessOthers(closing: Closing, sessions: readonly Session[]): Promise<void> {
  for (const some of batches(sessions, CHECKED_AT_ONCE)) {
    if (closing.isOver()) return
    const words = await closing.command(...some.map(({ pointer }) => `show sess ${pointer}`))
    const present = new Map(parseWholeSessions(words).map(session => [session.pointer, session]))
    const isStill = ({ pointer, backend, server }: Session) => {
      const now = present.get(pointer)
      return now?.backend === backend && now.server === server
    }
    await closeSessions(closing, some.filter(isStill))
  }
}

const batches = <T>(all: readonly T[], size: number): T[][] =>
  Array.from({ length: Math.ceil(all.length / size) }, (_, i) => all.slice(i * size, (i + 1) * size))
