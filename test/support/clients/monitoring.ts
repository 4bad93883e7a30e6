import { createInterface } from 'node:readline'
import { Monitors } from '../../../amphora-agent/datagrams/monitors/monitors.js'
import { prepareMachine } from '../../../amphora-agent/network/configure.js'
import { haproxyGroup } from '../../../amphora-agent/ping/ping.js'
import type { DatagramPool } from '../../../amphora-agent/protocol/datagrams.js'

/**
 * The agent's monitors alone. Each line of standard input is what to watch; after each line and each change, prints what
 * is known of all members.
 */

let watched: DatagramPool[] = []
const print = (value: object) => process.stdout.write(`${JSON.stringify(value)}\n`)
const warn = (text: string) => print({ logged: text })
const log = { info: warn, warn, error: warn }

const tell = () =>
  print({
    states: Object.fromEntries(
      watched.flatMap(({ id: pool, members }) =>
        members.map(({ id }) => {
          const failed = monitors.failedCheck(pool, id)
          const verdict = { true: 'up', false: 'down', null: 'unknown' }[`${monitors.isUp(pool, id)}`]
          const cause = failed && [failed.status, failed.code || failed.words].filter(Boolean).join(' ')
          return [id, cause === null ? verdict : `${verdict}: ${cause}`]
        }),
      ),
    ),
  })

prepareMachine(haproxyGroup(), log)
const monitors = new Monitors({ onChange: tell, onFailure: text => print({ repaired: text }), log })
print({ started: true })
for await (const line of createInterface({ input: process.stdin })) {
  const { pools, down } = JSON.parse(line) as { pools: DatagramPool[]; down: string[] }
  watched = pools
  monitors.watch(pools, down)
  tell()
}
await monitors.close()
