import t from 'tap'
import { createHostRoom, type DebianHost } from '../../support/worlds/debian-host.js'
import { runCases } from './cases.js'

const hosts: DebianHost[] = []
const hostOf = ({ lb_network_ip }: { lb_network_ip: string }): DebianHost => {
  const host = hosts.find(({ address }) => address === lb_network_ip)
  if (host === undefined) throw new Error(`No host has the address ${lb_network_ip}.`)
  return host
}

t.test('a load balancer on an enrolled host', t =>
  runCases(t, {
    settings: { KRATER_COMPUTE_DRIVER: 'enrolled' },
    prepare: async (t, lan) => {
      const room = await createHostRoom(t, lan)
      hosts.push(await room.add({ name: 'one', suite: 'bookworm', number: 31 }))
      hosts.push(await room.add({ name: 'two', suite: 'trixie', number: 32 }))
      return async ({ krater }) => {
        for (const { address } of hosts) {
          const words = ['enroll', `root@${address}`, '--identity', room.identity, '--yes']
          const { status, stderr } = await krater.command('amphora', ...words)
          t.equal(status, 0, stderr)
        }
      }
    },
    powerFails: async (_world, amphora) => {
      const host = hostOf(amphora)
      await host.powerOff()
      await host.powerOn()
    },
    reboots: async (_world, amphora) => hostOf(amphora).reboot(),
  }),
)
