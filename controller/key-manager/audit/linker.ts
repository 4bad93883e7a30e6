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
/** How long a record stands without a link, and so without a trace when it is removed. */
const PAUSE_MS = 100
/** How often the kept end of the chain follows what others have linked. */
const FOLLOW_MS = 1000
const LONGEST_PAUSE_MS = 30_000

/**
 * Links up to a thousand records that are not in the chain yet, in the order in which they were numbered. One process does this at a time.
 * @param key 32 bytes
 * @returns how many; fewer than a thousand means that none are left
 */
export async function linkRecords(database: Database, key: Buffer): Promise<number> {
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

/** From here to the end of the transaction nobody else adds to the chain or takes from it. */
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
  /** Keeps the end of the chain outside the database. */
  headFile: string
  log: Logger
}

/** Keeps linking what is recorded, within a tenth of a second, until stopped. Any number may run over one database. */
export async function startAuditLinker(options: LinkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, key, log } = options
  const stopping = new AbortController()
  const keepHead = headKeeper(options)
  const loop = (async () => {
    let pauseMs = PAUSE_MS
    let followedAt = Number.NEGATIVE_INFINITY
    while (!stopping.signal.aborted) {
      try {
        const linked = await linkRecords(database, key)
        if (linked > 0 || performance.now() - followedAt > FOLLOW_MS) {
          await keepHead()
          followedAt = performance.now()
        }
        pauseMs = linked === BATCH ? 0 : PAUSE_MS
      } catch (error) {
        pauseMs = Math.min(Math.max(pauseMs, PAUSE_MS) * 2, LONGEST_PAUSE_MS)
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
 * @returns a function that compares the kept end with the chain and moves it on. What is wrong goes into the log, at once and every hour; the kept
 *   end then stays as it is, until an operator accepts the chain.
 */
function headKeeper({ database, key, headFile, log }: LinkerOptions): () => Promise<void> {
  let saidAt = Number.NEGATIVE_INFINITY
  return async () => {
    const kept = readHead(headFile, key)
    const found = kept === 'forged' ? { fault: forgedHead(headFile) } : await followChain(database, key, kept)
    if (found.fault !== null) {
      if (performance.now() - saidAt > REPEAT_FAULT_MS) {
        saidAt = performance.now()
        log.error(`The audit log is not what it was. ${found.fault} See \`krater key-manager audit verify\`.`)
      }
      return
    }
    saidAt = Number.NEGATIVE_INFINITY
    if (found.end !== null && (kept === null || kept === 'forged' || found.end.position > kept.position)) {
      writeHead(headFile, key, found.end)
    }
  }
}
