import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../../database/connection.js'
import { isDatabaseAway } from '../../database/database-away.js'
import { execute, many, maybeOne } from '../../database/query.js'
import { json, sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import type { Logger } from '../../log/log.js'
import { FORGED_ANCHOR, readAnchor } from './anchor.js'
import { CHAIN_START, CHAINED_COLUMNS, type ChainedRecord, type ChainPlace, linkHash } from './chain.js'
import { followChain, forgedHead, readHead, writeHead } from './head.js'

const BATCH = 1000
/** How long a record may be without a link. Until it has one, its removal leaves no trace. */
const PAUSE_MS = 100
/** How often the stored chain head follows records that other processes linked. */
const FOLLOW_MS = 1000
const MAX_PAUSE_MS = 30_000

/**
 * Links up to 1000 records that are not in the chain yet, in the order of their numbers. One process does
 * this at a time.
 * @param key 32 bytes
 * @returns how many were linked; fewer than 1000 means that none are left
 */
export async function linkRecords(database: Database, key: Buffer): Promise<number> {
  // Nearly always nothing is new, and a process asks ten times per second: one statement instead of a transaction.
  const unlinked = sql<{ seq: string }>`SELECT seq FROM key_manager_audit.audit_record WHERE position IS NULL LIMIT 1`
  if ((await maybeOne(database, unlinked)) === undefined) return 0
  return inTransaction(database, async trx => {
    await lockChain(trx)
    const records = await many(
      trx,
      sql<ChainedRecord>`
        SELECT ${CHAINED_COLUMNS} FROM key_manager_audit.audit_record
         WHERE position IS NULL ORDER BY audit_record.seq LIMIT ${BATCH}`,
    )
    if (records.length === 0) return 0
    let { position, hash } = await endOfChain(trx, key)
    const links = records.map(record => {
      hash = linkHash(key, ++position, hash, record)
      return { seq: record.seq, position, hash: hash.toString('hex') }
    })
    await execute(
      trx,
      sql`UPDATE key_manager_audit.audit_record r SET position = l.position, hash = decode(l.hash, 'hex')
         FROM json_to_recordset(${json(links)}) AS l (seq bigint, position bigint, hash text) WHERE r.seq = l.seq`,
    )
    return records.length
  })
}

/** Keeps other transactions from adding to the chain or pruning it until this one ends. */
export async function lockChain(trx: Transaction): Promise<void> {
  await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext(${'krater audit chain'}))`)
}

async function endOfChain(trx: Transaction, key: Buffer): Promise<ChainPlace> {
  const last = await maybeOne(
    trx,
    sql<ChainPlace>`
      SELECT position, hash FROM key_manager_audit.audit_record WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1`,
  )
  if (last !== undefined) return last
  const anchor = await readAnchor(trx, key)
  if (anchor === 'forged') throw new Error(FORGED_ANCHOR)
  return anchor ?? CHAIN_START
}

type LinkerOptions = {
  database: Database
  key: Buffer
  /** Stores the chain head outside the database. */
  headFile: string
  log: Logger
}

/** Links new records within 100 ms until stopped. Several linkers may run on one database. */
export async function startAuditLinker(options: LinkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, key, log } = options
  const stopping = new AbortController()
  const updateHead = createHeadUpdater(options)
  const loop = (async () => {
    let pauseMs = PAUSE_MS
    let followedAt = Number.NEGATIVE_INFINITY
    while (!stopping.signal.aborted) {
      try {
        const linked = await linkRecords(database, key)
        if (linked > 0 || performance.now() - followedAt > FOLLOW_MS) {
          await updateHead()
          followedAt = performance.now()
        }
        pauseMs = linked === BATCH ? 0 : PAUSE_MS
      } catch (error) {
        pauseMs = Math.min(Math.max(pauseMs, PAUSE_MS) * 2, MAX_PAUSE_MS)
        log.warn(
          { err: error, pauseMs },
          isDatabaseAway(error) ? 'database away; trying again' : 'linking audit records failed; trying again',
        )
      }
      await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
    }
  })()
  return {
    stop: async () => {
      stopping.abort()
      await loop
    },
  }
}

const REPEAT_FAULT_MS = 3_600_000

/**
 * @returns a function that compares the stored head with the chain and advances it. It logs a fault at once
 *   and then hourly, and leaves the stored head unchanged until an operator accepts the chain.
 */
function createHeadUpdater({ database, key, headFile, log }: LinkerOptions): () => Promise<void> {
  let loggedAt = Number.NEGATIVE_INFINITY
  return async () => {
    const stored = readHead(headFile, key)
    const found = stored === 'forged' ? { fault: forgedHead(headFile) } : await followChain(database, key, stored)
    if (found.fault !== null) {
      if (performance.now() - loggedAt > REPEAT_FAULT_MS) {
        loggedAt = performance.now()
        log.error(`The audit log failed verification. ${found.fault} Run \`krater key-manager audit verify\`.`)
      }
      return
    }
    loggedAt = Number.NEGATIVE_INFINITY
    if (found.end !== null && (stored === null || stored === 'forged' || found.end.position > stored.position)) {
      writeHead(headFile, key, found.end)
    }
  }
}
