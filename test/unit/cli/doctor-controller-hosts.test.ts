import t from 'tap'
import { hostFindings } from '../../../controller/cli/commands/doctor/controller-hosts.js'
import { VERSION } from '../../../controller/cli/wiring/this-host.js'
import type { HostRow } from '../../../controller/hosts/read-hosts.js'

const SELF: HostRow = {
  ...{ id: 'one', name: 'one', address: '192.0.2.1', instance: 'i1', version: VERSION, added_at: '2026-11-28' },
  ...{ silent_seconds: 1, sign: '2026-11-28', amphorae_heard_seconds: 1, gone_at: null, removed_at: null },
  ...{ amphorae: 2, load_balancers: 2, processes: [] },
}
const OTHER: HostRow = { ...SELF, id: 'two', name: 'two', address: '192.0.2.2', instance: 'i2' }

const findings = (...hosts: HostRow[]) => hostFindings(hosts, { own: 'one', port: 5555 })

t.test('the doctor says what controller hosts lack of each other', async t => {
  t.same(findings(SELF), [], 'a host by itself lacks nothing')
  t.same(findings(SELF, { ...OTHER, removed_at: '2026-11-28' }), [], 'a removed host is none')
  t.match(findings(SELF, OTHER), [{ about: 'host two', state: 'ok', text: /2 load balancers/ }])
  t.match(findings({ ...SELF, address: null }, OTHER), [{ state: 'fault', remedy: /host\.address/ }, { state: 'ok' }])
  t.match(findings(SELF, { ...OTHER, silent_seconds: null, version: null }), [{ state: 'note', text: /not started/ }])
  t.match(findings(SELF, { ...OTHER, silent_seconds: 99.6 }), [{ state: 'fault', text: /no sign of life for 100 s/ }])
  t.match(findings(SELF, { ...OTHER, gone_at: '2026-11-28' }), [
    { state: 'fault', text: /^gone/, remedy: /--gone two/ },
  ])
  t.match(findings(SELF, { ...OTHER, version: '0.0.1' }), [{ state: 'fault', text: /runs version 0\.0\.1/ }])
})

t.test('the doctor finds that heartbeats do not cross between hosts', async t => {
  for (const heard of [null, 61]) {
    const [finding] = findings(SELF, { ...OTHER, amphorae_heard_seconds: heard })
    t.match(finding, { state: 'fault', text: /no other host hears its amphorae/, remedy: /UDP port 5555/ })
  }
  const idle = { ...OTHER, amphorae_heard_seconds: null, load_balancers: 0 }
  t.match(findings(SELF, idle), [{ state: 'ok', text: /0 load balancers/ }], 'a host without load balancers owes none')
})
