import { join } from 'node:path'
import { createLog } from '../../controller/log/log.js'
import { OvsdbClient } from '../../controller/ovsdb/client.js'

/** The rows that load balancers have in the northbound database. */
const NORTHBOUND = {
  NB_Global: { nb_cfg: 'integer' },
  Load_Balancer: { external_ids: 'map' },
  Logical_Router_Port: { external_ids: 'map' },
} as const
const SOUTHBOUND = { SB_Global: { nb_cfg: 'integer' }, Chassis_Private: { nb_cfg: 'integer' } } as const

/** What `performance.now` was when a change came so far. */
export type Stages = { written: number; computed: number; installed: number }

/** Follows both databases of an OVN, and sees when changes come how far. */
export type StageWatch = {
  /** Waits for the next change, and until it is installed. Begin before the change. */
  next: () => Promise<Stages>
  /** Waits until nothing that is written waits for a hypervisor. */
  rest: () => Promise<void>
  /** Deletes rows of load balancers, and waits until there are as many as before. @returns milliseconds from the loss on */
  repaired: (deletion: () => Promise<unknown>) => Promise<number>
  stop: () => Promise<void>
}

const LIMIT_MS = 1_800_000

export async function watchStages(stateDirectory: string): Promise<StageWatch> {
  const log = createLog('bench', 'silent')
  const at = (name: string) => [{ kind: 'unix' as const, path: join(stateDirectory, 'ovn', `${name}.socket`) }]
  const northbound = new OvsdbClient({
    ...{ addresses: at('northbound'), database: 'OVN_Northbound', tables: NORTHBOUND, log },
  })
  const southbound = new OvsdbClient({
    ...{ addresses: at('southbound'), database: 'OVN_Southbound', tables: SOUTHBOUND, log },
  })
  await Promise.all([northbound.ready(10_000), southbound.ready(10_000)])
  const least = (rows: Iterable<{ nb_cfg: number }>) => Math.min(...[...rows].map(({ nb_cfg }) => nb_cfg))
  const written = () => least(northbound.rows('NB_Global').values())
  const computed = () => least(southbound.rows('SB_Global').values())
  const installed = () => least(southbound.rows('Chassis_Private').values())
  const until = async (client: Pick<typeof northbound, 'until'>, isSo: () => boolean, what: string) => {
    if (!(await client.until(isSo, LIMIT_MS))) throw new Error(`Not in time: ${what}`)
    return performance.now()
  }
  const rows = () => northbound.rows('Load_Balancer').size + northbound.rows('Logical_Router_Port').size
  return {
    next: async () => {
      const before = written()
      const writtenAt = until(northbound, () => written() > before, 'a change is written')
      const computedAt = until(southbound, () => computed() > before, 'northd works it out')
      const installedAt = until(southbound, () => installed() > before, 'it is installed')
      return { written: await writtenAt, computed: await computedAt, installed: await installedAt }
    },
    rest: async () => {
      await until(southbound, () => installed() >= written(), 'everything is installed')
    },
    repaired: async deletion => {
      const count = rows()
      const lost = until(northbound, () => rows() < count, 'rows are gone')
      await deletion()
      const began = await lost
      return (await until(northbound, () => rows() === count, `there are ${count} rows`)) - began
    },
    stop: async () => {
      await Promise.all([northbound.stop(), southbound.stop()])
    },
  }
}
