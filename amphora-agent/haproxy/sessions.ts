/** One stream of `show sess`. */
export type Session = { pointer: string; backend: string; server: string }

/** Reads `show sess`; lines of other kinds are left out, and streams that have no server yet have none by name. */
export function parseSessions(text: string): Session[] {
  return text.split('\n').flatMap(line => {
    const [, pointer, backend, server] = /^(0x[0-9a-f]+): .* be=(\S+) srv=(\S+) /.exec(line) ?? []
    return pointer === undefined || backend === undefined || server === undefined ? [] : [{ pointer, backend, server }]
  })
}
