import t from 'tap'
import { isSettled } from '../../../amphora-agent/haproxy/runtime/settled.js'

/** An answer of HAProxy to `show peers` and `show table`. */
const answer = (flags: string | null, used: number) =>
  [
    ...(flags === null
      ? []
      : [
          `0x5581: [23/Nov/2026:02:00:00] id=krater_peers disabled=0 flags=${flags} resync_timeout=<PAST> task_calls=7`,
        ]),
    `# table: sources, type: ipv6, size:102400, used:${used}`,
  ].join('\n')

t.test('stick tables are settled once neither the former worker nor a peer has entries left to send', async t => {
  t.equal(isSettled(answer('0x3', 1)), true)
  t.equal(isSettled(answer('0x33', 1)), true, 'other flags do not matter')
  for (const flags of ['0x0', '0x1', '0x2', '0x30']) t.equal(isSettled(answer(flags, 1)), false, flags)
})

t.test('without entries, peers or stick tables, nothing is awaited', async t => {
  t.equal(isSettled(answer('0x0', 0)), true, 'without entries')
  t.equal(isSettled(answer(null, 5)), true, 'without peers')
  t.equal(isSettled(''), true, 'without stick tables')
})
