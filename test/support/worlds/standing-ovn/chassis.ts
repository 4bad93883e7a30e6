import { join } from 'node:path'
import type { Test } from 'tap'
import { type OvsdbServer, ovsdbServer } from '../../services/ovsdb.js'
import { type Daemon, daemon, run } from './daemon.js'

export type Chassis = {
  name: string
  /** The socket of its switch's database. */
  socket: string
  /** Runs ovs-vsctl on it. */
  vsctl: (...words: string[]) => Promise<string>
  database: OvsdbServer
  controller: Daemon
  vswitchd: Daemon
}

export type ChassisOptions = {
  directory: string
  name: string
  /** ovn-remote and the words with the files of its certificate. */
  southbound: string
  tls: readonly string[]
  /** Where others send packets in tunnels. */
  address: string
  /** The network namespace of its switch; null: the host's own. */
  namespace: string | null
}

/** A hypervisor with the datapath in userspace, as its operator sets it up. */
export async function startChassis(
  t: Test,
  { directory, name, southbound, tls, address, namespace }: ChassisOptions,
): Promise<Chassis> {
  const within = namespace === null ? [] : ['ip', 'netns', 'exec', namespace]
  const database = join(directory, 'conf.db')
  const socket = join(directory, 'db.sock')
  const server = ovsdbServer(join(directory, 'db'), {
    ...{ database, address: { kind: 'unix', path: socket }, remotes: [`punix:${socket}`] },
  })
  await run('ovsdb-tool', ['create', database, '/usr/share/openvswitch/vswitch.ovsschema'])
  t.teardown(() => server.end('SIGKILL'))
  await server.start()
  const vsctl: Chassis['vsctl'] = async (...words) =>
    (await run('ovs-vsctl', [`--db=unix:${socket}`, '--timeout=10', ...words])).stdout
  const ids = {
    ...{ 'system-id': name, 'ovn-remote': southbound, 'ovn-encap-type': 'geneve', 'ovn-encap-ip': address },
    ...{ 'ovn-bridge-datapath-type': 'netdev', hostname: name },
  }
  await vsctl('--no-wait', 'init')
  await vsctl(
    ...['--no-wait', 'set', 'open_vswitch', '.'],
    ...Object.entries(ids).map(([key, value]) => `external-ids:${key}="${value}"`),
  )
  const vswitchd = daemon(t, join(directory, 'vswitchd'), ['ovs-vswitchd', `unix:${socket}`], {
    ...{ within, bridges: directory },
    // Its interfaces would outlive it.
    farewell: ['exit', '--cleanup'],
  })
  // It reaches the databases from here, and its switch by sockets.
  const controller = daemon(t, join(directory, 'ctl'), ['ovn-controller', `unix:${socket}`, ...tls], {
    bridges: directory,
  })
  await vswitchd.start()
  await controller.start()
  return { name, socket, vsctl, database: server, controller, vswitchd }
}
