import { readFileSync } from 'node:fs'
import t from 'tap'
import { ownPorts } from '../support/ports.js'

t.test('each test port is handed out once, outside the kernel’s range for clients', async t => {
  const clients = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split('\t')[0])
  const ports = (await Promise.all(Array.from({ length: 8 }, () => ownPorts(100)))).flat()
  t.equal(new Set(ports).size, ports.length)
  t.ok(
    ports.every(port => port > 1_023 && port < clients),
    'the kernel gives none of them to a client',
  )
})
