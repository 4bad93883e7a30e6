import t from 'tap'
import { formatOvsdbAddress, parseOvsdbAddresses } from '../../../controller/ovsdb/address.js'

t.test('addresses are read as OVN’s programs read them', async t => {
  for (const text of [
    'unix:/run/ovn/ovnnb_db.sock',
    'tcp:10.0.0.1:6641',
    'ssl:[2001:db8::2]:6641',
    'ssl:db-1.example:6641',
  ]) {
    const [address, ...others] = parseOvsdbAddresses(text) ?? []
    t.same(others, [])
    t.equal(address && formatOvsdbAddress(address), text)
  }
  t.equal(parseOvsdbAddresses('ssl:10.0.0.1:6641, ssl:10.0.0.2:6641')?.length, 2)
})

t.test('others are refused', async t => {
  for (const text of [
    '',
    'unix:run/db.sock',
    'tcp:10.0.0.1',
    'tcp:10.0.0.1:0',
    'tcp:10.0.0.1:65536',
    'tcp:[10.0.0.1]:6641',
    'ptcp:6641',
    'tcp:a:1,',
  ])
    t.equal(parseOvsdbAddresses(text), null, text)
})
