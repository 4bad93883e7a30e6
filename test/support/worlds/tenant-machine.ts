import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { fabricOf } from '../../../controller/cli/wiring/drivers.js'
import type { Krater } from './krater.js'

const run = promisify(execFile)

/** An interface of the machine: its network, a subnet for each CIDR, and the machine's address on each. */
export type TenantInterface = { networkId: string; legs: { subnetId: string; address: string }[] }

/** Registered functions run at the end, the last first; a test is one. */
export type Ending = { teardown: (act: () => unknown) => void }

export type TenantMachine = {
  namespace: string
  /**
   * Creates a network with these subnets by the Networking API, as any client would, and an interface on all of
   * them.
   * @param addressesOnEach how many addresses it has on each subnet
   */
  standOn: (interfaceName: string, cidrs: readonly string[], addressesOnEach?: number) => Promise<TenantInterface>
  /** Runs a Node.js program, given as text, in the machine. It is killed at the end of the test. */
  start: (text: string, words: readonly string[]) => ChildProcess
}

/** A tenant's machine: a network namespace of the test. It ends with the test. */
export async function createTenantMachine(
  t: Ending,
  krater: Pick<Krater, 'api' | 'instance' | 'directory'>,
  name: string,
): Promise<TenantMachine> {
  const api = await krater.api()
  const make = async <T>(kind: 'network' | 'subnet' | 'port', body: Record<string, unknown>): Promise<T> => {
    const answer = await api.request('network', 'POST', `/v2.0/${kind}s`, { [kind]: body })
    return (answer as Record<typeof kind, T>)[kind]
  }
  const namespace = `test-${krater.instance()}-${name}`
  const fabric = fabricOf(krater.directory)
  const ip = (...args: string[]) => run('ip', args, { timeout: 10_000 })
  await ip('netns', 'add', namespace)
  t.teardown(() => ip('netns', 'delete', namespace))
  await ip('-n', namespace, 'link', 'set', 'lo', 'up')

  return {
    namespace,
    standOn: async (interfaceName, cidrs, addressesOnEach = 1) => {
      const { id: network_id } = await make<{ id: string }>('network', { name: interfaceName })
      const desired: { subnetId: string; prefix: string }[] = []
      for (const cidr of cidrs) {
        const ip_version = cidr.includes(':') ? 6 : 4
        const body = { name: interfaceName, network_id, cidr, ip_version, gateway_ip: null }
        const { id: subnetId } = await make<{ id: string }>('subnet', body)
        for (let i = 0; i < addressesOnEach; i++) desired.push({ subnetId, prefix: cidr.split('/')[1] ?? '' })
      }
      const port = await make<{ id: string; mac_address: string; fixed_ips: { ip_address: string }[] }>('port', {
        network_id,
        device_owner: 'krater:attachment',
        fixed_ips: desired.map(({ subnetId }) => ({ subnet_id: subnetId })),
      })
      t.teardown(() => fabric.detach(port.id))
      const addresses = port.fixed_ips.map(({ ip_address }) => ip_address)
      const nic = { networkId: network_id, mtu: 1500, portId: port.id, macAddress: port.mac_address, addresses }
      await fabric.attach({ ...nic, namespace, interfaceName })
      const legs = desired.map(({ subnetId, prefix }, at) => ({ subnetId, prefix, address: addresses[at] ?? '' }))
      for (const { address, prefix } of legs) {
        const atOnce = address.includes(':') ? ['nodad'] : []
        await ip('-n', namespace, 'addr', 'add', `${address}/${prefix}`, 'dev', interfaceName, ...atOnce)
      }
      await ip('-n', namespace, 'link', 'set', interfaceName, 'up')
      return { networkId: network_id, legs }
    },
    start: (text, words) => {
      const command = ['netns', 'exec', namespace, process.execPath, '-e', text, ...words]
      const child = spawn('ip', command, { stdio: ['pipe', 'pipe', 'inherit'] })
      const ended = once(child, 'exit')
      t.teardown(async () => {
        child.kill('SIGKILL')
        await ended
      })
      return child
    },
  }
}
