import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { createLog } from '../../../controller/log/log.js'
import type { Provider } from '../../../controller/provider/provider.js'
import type { Claim } from '../../../controller/queue/claim.js'
import { startWorker } from '../../../controller/worker/worker.js'
import { createTestDatabase } from '../database/database.js'
import { findLoadBalancer } from '../database/load-balancer-rows.js'
import { eventually } from '../eventually.js'

const log = createLog('test', 'silent')

type Converging = { claim: Claim; tree: LoadBalancerTree; signal: AbortSignal; worker: string }
type Behaviour = (converging: Converging) => Promise<void>

/** A provider that records its calls, and when two worked on one load balancer at the same time. */
function createRecorder() {
  const calls: Converging[] = []
  const busy = new Set<string>()
  const overlaps: string[] = []
  const behaviours = new Map<string, Behaviour>()
  const provider = (worker: string): Provider => ({
    name: 'recording',
    description: '',
    converge: async (claim, tree, signal) => {
      const call = { claim, tree, signal, worker }
      calls.push(call)
      if (busy.has(tree.id)) overlaps.push(tree.id)
      busy.add(tree.id)
      try {
        await behaviours.get(tree.id)?.(call)
      } finally {
        busy.delete(tree.id)
      }
    },
  })
  return {
    provider,
    overlaps,
    behave: (id: string, behaviour: Behaviour) => behaviours.set(id, behaviour),
    callsFor: (id: string) => calls.filter(call => call.tree.id === id),
  }
}

/** A gate at which a behaviour waits until it is opened. */
export function createGate() {
  const gate = { open: () => {}, arrive: () => {} }
  const opened = new Promise<void>(resolve => {
    gate.open = resolve
  })
  const arrived = new Promise<void>(resolve => {
    gate.arrive = resolve
  })
  const pass = async () => {
    gate.arrive()
    await opened
  }
  return { open: () => gate.open(), arrived, pass }
}

/**
 * A database, providers that record what workers ask of them, and shortcuts for what a worker has done with a
 * load balancer.
 */
export async function createWorkerScene() {
  const testDatabase = await createTestDatabase()
  const db = testDatabase.of('load_balancer')
  const recorder = createRecorder()
  const url = testDatabase.urlOf('load_balancer')
  return {
    db,
    url,
    recorder,
    start: (owner: string, sweep_interval = 60, database = db, databaseUrl = url) =>
      startWorker({
        database,
        databaseUrl,
        providers: new Map([['recording', recorder.provider(owner)]]),
        config: { concurrency: 8, sweep_interval },
        hostId: null,
        log,
        owner,
      }),
    settledAt: (id: string, generation: number) =>
      eventually(`${id} settles at ${generation}`, async () => {
        const row = await findLoadBalancer(db, id)
        return row !== undefined && row.applied_generation >= generation && row.lease_owner === null && row
      }),
    gone: (id: string) => eventually(`${id} is gone`, async () => (await findLoadBalancer(db, id)) === undefined),
    faulted: (id: string, attempts = 1) =>
      eventually(`${id} has failed ${attempts} times`, async () => {
        const row = await findLoadBalancer(db, id)
        return row !== undefined && row.attempts >= attempts && row.lease_owner === null && row
      }),
    stop: testDatabase.drop,
  }
}
