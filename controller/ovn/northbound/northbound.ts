import type { Logger } from '../../log/log.js'
import type { OvsdbAddress } from '../../ovsdb/address.js'
import { OvsdbClient } from '../../ovsdb/client.js'
import type { OvsdbTls } from '../../ovsdb/connection.js'
import { RowsGone, TransactionRefused } from '../../ovsdb/errors.js'
import type { Operation } from '../../ovsdb/transaction.js'
import { NORTHBOUND, type Northbound as NorthboundTables } from './columns.js'
import { type Desired, type Holder, marked, type Owner } from './desired.js'
import { NorthboundIndex } from './northbound-index.js'
import { type Difference, planRows, type RowsPlan, type Standing } from './plan-rows.js'

export type NorthboundOptions = {
  addresses: readonly OvsdbAddress[]
  tls?: OvsdbTls | undefined
  /** Of this installation: marks its rows. */
  instance: string
  log: Logger
}

/** What `ensure` has done. */
export type Ensured = {
  differences: Difference[]
  /** Places that are not there yet. */
  missingHolders: Holder[]
  /** What `nb_cfg` became; null if nothing had to be changed. */
  change: number | null
  /** An `nb_cfg` with which all rows stand, whoever has written them. */
  standing: number
}

const MAX_ATTEMPTS = 5

/** OVN's northbound database, by owners of rows. */
export class Northbound {
  readonly client: OvsdbClient<NorthboundTables>
  readonly #instance: string
  readonly #index: NorthboundIndex
  readonly #listeners = new Set<(owners: ReadonlySet<Owner>) => void>()
  /** Owners whose rows this process changes just now. */
  readonly #changing = new Map<Owner, number>()

  constructor({ addresses, tls, instance, log }: NorthboundOptions) {
    this.#instance = instance
    this.#index = new NorthboundIndex(instance)
    this.client = new OvsdbClient({ addresses, database: 'OVN_Northbound', tables: NORTHBOUND, tls, log })
    this.client.onChange(changes => {
      const followed = this.#index.follow(changes)
      const owners = new Set([...followed].filter(owner => !this.#changing.has(owner)))
      if (owners.size > 0) for (const listener of [...this.#listeners]) listener(owners)
    })
  }

  /** Calls a listener with the owners whose rows others changed. @returns what ends it */
  onOwners(listener: (owners: ReadonlySet<Owner>) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Owners that have rows. */
  owners(): Owner[] {
    return this.#index.owners()
  }

  /** `nb_cfg`, which counts changes. */
  change(): number {
    return [...this.client.rows('NB_Global').values()][0]?.nb_cfg ?? 0
  }

  /** What differs from what an owner wants. Changes nothing. */
  plan(desired: Desired): RowsPlan {
    const standing: Standing = {
      owned: this.#index.rowsOf(desired.owner),
      find: (table, uuid) => this.client.row(table, uuid),
      holdersOf: uuid => this.#index.holdersOf(uuid),
      isOurs: ({ uuid }) => this.#index.isOwned(uuid),
    }
    return planRows(marked(this.#instance, desired), standing)
  }

  /**
   * Makes the rows of owners as they want them, in one transaction. Others may change the same rows meanwhile: it looks
   * again until nothing differs.
   * @throws TransactionRefused, OvsdbUnreachable
   */
  async ensure(owners: readonly Desired[], { signal }: { signal?: AbortSignal } = {}): Promise<Ensured> {
    await this.client.ready(5_000, signal)
    const release = this.#hold(owners)
    try {
      return await this.#ensure(owners, signal)
    } finally {
      release()
    }
  }

  async #ensure(owners: readonly Desired[], signal: AbortSignal | undefined): Promise<Ensured> {
    const done: Ensured = { differences: [], missingHolders: [], change: null, standing: 0 }
    let refusal: TransactionRefused | null = null
    for (let attempt = 1; ; attempt++) {
      const plans = owners.map(desired => this.plan(desired))
      const operations = plans.flatMap(plan => plan.operations)
      done.missingHolders = plans.flatMap(plan => plan.missingHolders)
      done.standing = this.change()
      if (operations.length === 0) return done
      if (attempt > MAX_ATTEMPTS)
        throw refusal ?? new Error(`Others change the same rows of OVN all the time: ${nameOf(owners)}`)
      done.differences.push(...plans.flatMap(plan => plan.differences))
      const comment = `krater ${this.#instance}: ${nameOf(owners)}`
      try {
        await this.client.transact([...operations, this.#raising()], {
          ...{ comment, ...(signal === undefined ? {} : { signal }) },
        })
        done.change = this.change()
      } catch (error) {
        const isOvertaken =
          error instanceof RowsGone || (error instanceof TransactionRefused && isAboutRows(error.code))
        if (!isOvertaken) throw error
        refusal = error instanceof TransactionRefused ? error : null
      }
    }
  }

  /**
   * Raises `nb_cfg`, so that hypervisors tell what they have installed.
   * @throws TransactionRefused, OvsdbUnreachable
   */
  async raise(signal?: AbortSignal): Promise<void> {
    await this.client.transact([this.#raising()], {
      ...{ comment: `krater ${this.#instance}: what is installed?` },
      ...(signal === undefined ? {} : { signal }),
    })
  }

  #raising(): Operation<NorthboundTables> {
    const [global] = this.client.rows('NB_Global').keys()
    if (global === undefined) throw new Error('The northbound database has no row in NB_Global.')
    return { op: 'mutate', table: 'NB_Global', uuid: global, mutations: [{ column: 'nb_cfg', increment: 1 }] }
  }

  #hold(owners: readonly Desired[]): () => void {
    for (const { owner } of owners) this.#changing.set(owner, (this.#changing.get(owner) ?? 0) + 1)
    return () => {
      for (const { owner } of owners) {
        const left = (this.#changing.get(owner) ?? 0) - 1
        if (left > 0) this.#changing.set(owner, left)
        else this.#changing.delete(owner)
      }
    }
  }

  stop(): Promise<void> {
    this.#listeners.clear()
    return this.client.stop()
  }
}

const nameOf = (owners: readonly Desired[]): string =>
  owners
    .map(({ owner }) => owner)
    .join(', ')
    .slice(0, 500)

/** A row that another one inserted, deleted or referred to meanwhile, or rows that can never stand. */
const isAboutRows = (code: string): boolean =>
  code === 'duplicate uuid' || code === 'referential integrity violation' || code === 'constraint violation'
