import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { createTenantMachine, type Ending, type TenantInterface } from '../support/worlds/tenant-machine.js'
import type { BenchInstance } from './instance.js'

const CIDRS = ['192.168.200.0/24', '192.168.201.0/24']

type MemberPorts = { firstPort: number; count: number }

/**
 * A tenant's machine on several networks that answers on several ports. @returns the subnets and its addresses
 * there
 */
export async function startMemberMachine(
  ending: Ending,
  { directory, api }: BenchInstance,
  { firstPort, count, networks }: MemberPorts & { networks: 1 | 2 },
): Promise<TenantInterface['legs']> {
  const krater = { directory, api: async () => api, instance: () => instanceId(directory) ?? '' }
  const machine = await createTenantMachine(ending, krater, 'members')
  const interfaces: TenantInterface[] = []
  for (const [at, cidr] of CIDRS.slice(0, networks).entries())
    interfaces.push(await machine.standOn(`members-${at}`, [cidr]))
  const program = join(dirname(process.argv[1] ?? ''), 'members.mjs')
  const server = machine.start(`import(${JSON.stringify(program)})`, [String(firstPort), String(count)])
  if (server.stdout !== null) await once(server.stdout, 'data')
  return interfaces.flatMap(({ legs }) => legs)
}
