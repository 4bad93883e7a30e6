import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { fabricOf } from '../../../controller/cli/wiring/drivers.js'
import type { Krater } from '../worlds/krater.js'

const run = promisify(execFile)

/** A web server with its own namespace on a network, which answers every request with its name. */
export type Member = {
  name: string
  address: string
  port: number
  namespace: string
  /** Starts the server, which runs after createMember. Resolves when it accepts connections. */
  start: () => Promise<void>
  /** kill -9. */
  kill: () => Promise<void>
}

const SERVER = `const [name, port] = process.argv.slice(1)
require('node:http').createServer((_, response) => response.end(name)).listen(Number(port), () => console.log('listening'))`

/** Creates the port by the Networking API, as any client would, and plugs a namespace of the test into it. */
export async function createMember(
  t: Test,
  krater: Krater,
  name: string,
  subnetName = 'private-subnet',
): Promise<Member> {
  const api = await krater.api()
  const { subnets } = (await api.request('network', 'GET', `/v2.0/subnets?name=${subnetName}`)) as {
    subnets: { id: string; network_id: string; cidr: string }[]
  }
  const [subnet] = subnets
  if (subnet === undefined) throw new Error(`there is no ${subnetName}`)
  const { port } = (await api.request('network', 'POST', '/v2.0/ports', {
    port: {
      name,
      network_id: subnet.network_id,
      fixed_ips: [{ subnet_id: subnet.id }],
      device_owner: 'krater:attachment',
    },
  })) as { port: { id: string; mac_address: string; fixed_ips: { ip_address: string }[] } }
  const address = port.fixed_ips[0]?.ip_address ?? ''
  const namespace = `test-${krater.instance()}-${name}`
  const fabric = fabricOf(krater.directory)
  const ip = (...args: string[]) => run('ip', args, { timeout: 10_000 })
  await ip('netns', 'add', namespace)
  let server: ChildProcess | null = null
  const kill = async () => {
    if (server === null) return
    const ended = once(server, 'exit')
    server.kill('SIGKILL')
    await ended
    server = null
  }
  t.teardown(async () => {
    await kill()
    await fabric.detach(port.id)
    await ip('netns', 'delete', namespace)
  })
  await ip('-n', namespace, 'link', 'set', 'lo', 'up')
  await fabric.attach({
    networkId: subnet.network_id,
    mtu: 1500,
    portId: port.id,
    macAddress: port.mac_address,
    addresses: [address],
    namespace,
    interfaceName: 'eth0',
  })
  await ip('-n', namespace, 'addr', 'add', `${address}/${subnet.cidr.split('/')[1]}`, 'dev', 'eth0')
  await ip('-n', namespace, 'link', 'set', 'eth0', 'up')
  const start = async () => {
    const child = spawn('ip', ['netns', 'exec', namespace, process.execPath, '-e', SERVER, name, '8080'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    server = child
    await once(child.stdout, 'data')
  }
  await start()
  return { name, address, port: 8080, namespace, start, kill }
}
