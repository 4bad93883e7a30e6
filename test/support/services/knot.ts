import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** Debian's knot in a network namespace, on port 53 of UDP and TCP. It tells its number as an address of `who.test`. */
export type NameServer = {
  /** Resolves when it answers. */
  start: () => Promise<void>
  /** kill -9. */
  kill: () => Promise<void>
}

/** The address that server `number` tells. */
export const toldBy = (number: number): string => `192.0.2.${number}`

const configuration = (directory: string, address: string) => `server:
    rundir: "${directory}"
    pidfile: "${directory}/knot.pid"
    listen: "${address}@53"
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: "${directory}"
control:
    listen: "${directory}/knot.sock"
log:
  - target: stdout
    any: info
template:
  - id: default
    storage: "${directory}"
    file: "%s.zone"
zone:
  - domain: test
`

const zone = (number: number) => `$ORIGIN test.
@ 3600 SOA ns.test. admin.test. 1 3600 900 86400 300
@ 3600 NS ns.test.
ns 3600 A ${toldBy(number)}
who 3600 A ${toldBy(number)}
`

/** Starts one; it ends with the test. */
export async function startKnot(
  t: Pick<Test, 'teardown'>,
  { namespace, address, number }: { namespace: string; address: string; number: number },
): Promise<NameServer> {
  const directory = mkdtempSync(join(tmpdir(), 'knot-'))
  writeFileSync(join(directory, 'knot.conf'), configuration(directory, address))
  writeFileSync(join(directory, 'test.zone'), zone(number))
  let server: ChildProcess | null = null
  const kill = async () => {
    if (server === null) return
    const ended = once(server, 'exit')
    server.kill('SIGKILL')
    await ended
    server = null
  }
  const start = async () => {
    const words = ['netns', 'exec', namespace, 'knotd', '-c', join(directory, 'knot.conf')]
    const child = spawn('ip', words, { stdio: ['ignore', 'pipe', 'inherit'] })
    server = child
    let said = ''
    for await (const piece of child.stdout.iterator({ destroyOnReturn: false })) {
      said += piece
      if (/server started/.test(said)) break
    }
    child.stdout.resume()
    if (!/server started/.test(said)) throw new Error(`knotd did not start: ${said}`)
  }
  t.teardown(async () => {
    await kill()
    rmSync(directory, { recursive: true, force: true })
  })
  await start()
  return { start, kill }
}
