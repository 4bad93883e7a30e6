import { randomBytes } from 'node:crypto'
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { connect, type Database } from '../../../../controller/database/connection.js'
import { readHead } from '../../../../controller/key-manager/audit/head.js'
import { linkRecords, startAuditLinker } from '../../../../controller/key-manager/audit/linker.js'
import { countPrunable, pruneAudit } from '../../../../controller/key-manager/audit/prune.js'
import { exportAudit, verifyAudit } from '../../../../controller/key-manager/audit/read.js'
import { recordAudit } from '../../../../controller/key-manager/audit/record.js'
import { FOREIGN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { createTestDatabase } from '../../../support/database/database.js'
import { startStatementProxy } from '../../../support/faults/statement-proxy.js'
import { recordLog } from '../../../support/recorded-log.js'
import { eventually, quiet } from '../../../support/worlds/machines.js'

const key = randomBytes(32)
const actor = { userId: 'u', projectId: 'p', requestId: 'req-1', remoteAddress: '127.0.0.1' }

t.test('the API records operations in the audit log', async t => {
  const { ask, store, database, stop } = await startTestKeyManager()
  t.teardown(stop)
  const records = async (id: string): Promise<Record<string, unknown>[]> =>
    database('audit_record').where({ target_id: id }).orderBy('seq')

  t.test('the records of a secret name user, project, address, request and outcome', async t => {
    const id = await store()
    await ask('GET', `/v1/secrets/${id}/payload`)
    await ask('GET', `/v1/secrets/${id}/payload`, undefined, { token: tokenOf('member', FOREIGN) })
    await ask('DELETE', `/v1/secrets/${id}`)
    t.match(await records(id), [
      { action: 'secret.create', outcome: 'success', user_id: 'user-member', remote_address: '127.0.0.1' },
      { action: 'secret.payload.read', outcome: 'success' },
      { action: 'secret.payload.read', outcome: 'denied', project_id: FOREIGN, detail: { status: 403 } },
      { action: 'secret.delete', outcome: 'success', request_id: /^req-/ },
    ])
  })

  t.test('allowed and denied reads of an ACL are recorded', async t => {
    const id = await store()
    await ask('GET', `/v1/secrets/${id}/acl`)
    await ask('GET', `/v1/secrets/${id}/acl`, undefined, { token: tokenOf('member', FOREIGN) })
    t.match(await records(id), [
      { action: 'secret.create' },
      { action: 'secret.acl.read', outcome: 'success' },
      { action: 'secret.acl.read', outcome: 'denied', project_id: FOREIGN },
    ])
  })

  t.test('reading a secret’s metadata is not recorded', async t => {
    const id = await store()
    await ask('GET', `/v1/secrets/${id}`)
    t.equal((await records(id)).length, 1)
  })
})

/** A database for one test, and a superuser's connection to it. */
async function ownDatabase(t: Test) {
  const own = await createTestDatabase()
  const superuser = connect({ url: own.administratorUrl, applicationName: 'test', poolSize: 1 })
  t.teardown(async () => {
    await superuser.destroy()
    await own.drop()
  })
  return { database: own.of('key_manager'), superuser }
}

t.test('the audit chain', async t => {
  const { database, superuser } = await ownDatabase(t)
  const record = (targetId: string, on: Database = database) =>
    recordAudit(on, actor, {
      action: 'secret.create',
      outcome: 'success',
      targetType: 'secret',
      targetId,
      detail: { status: 201, what: 'äöü "quoted"' },
    })

  t.test('an empty log verifies', async t => {
    const verdict = { verified: 0, head: null, waiting: 0, waitingSince: null, fault: null, removed: null }
    t.same(await verifyAudit(database, key), verdict)
  })

  t.test('records wait for the linker, then join the chain', async t => {
    for (let i = 0; i < 5; i++) await record(`s${i}`)
    t.match(await verifyAudit(database, key), { verified: 0, waiting: 5, fault: null, waitingSince: /^2/ })
    t.equal(await linkRecords(database, key), 5)
    t.match(await verifyAudit(database, key), { verified: 5, waiting: 0, fault: null, head: { position: 5 } })
  })

  t.test('concurrent linkers build one chain over several batches', async t => {
    await database.raw(
      `INSERT INTO audit_record (action, outcome, target_type) SELECT 'secret.create', 'success', 'secret' FROM generate_series(1, 2500)`,
    )
    const headFile = join(t.testdir({}), 'head')
    const linkers = await Promise.all([1, 2, 3].map(() => startAuditLinker({ database, key, headFile, log: quiet })))
    await eventually('every record is linked', async () => (await verifyAudit(database, key)).waiting === 0 || null)
    await Promise.all(linkers.map(linker => linker.stop()))
    t.match(await verifyAudit(database, key), { verified: 2505, fault: null })
  })

  t.test('a record that commits late is linked late and the chain stays valid', async t => {
    const late = await database.transaction()
    await late.raw(
      `INSERT INTO audit_record (action, outcome, target_type) VALUES ('secret.delete', 'success', 'secret')`,
    )
    await record('sooner')
    await linkRecords(database, key)
    await late.commit()
    await linkRecords(database, key)
    t.match(await verifyAudit(database, key), { verified: 2507, fault: null })
  })

  t.test('the service role cannot change or remove records', async t => {
    for (const statement of [
      `UPDATE audit_record SET outcome = 'denied' WHERE position = 3`,
      'UPDATE audit_record SET position = NULL, hash = NULL WHERE position = 3',
      'DELETE FROM audit_record WHERE position = 3',
      'TRUNCATE audit_record',
    ]) {
      await t.rejects(database.raw(statement), /only ever added|permission denied/, statement)
      await t.rejects(
        superuser.raw(statement.replace('audit_', 'key_manager_audit.audit_')),
        /only ever added/,
        statement,
      )
    }
    await record('unlinked')
    for (const statement of [
      `UPDATE audit_record SET action = 'x' WHERE position IS NULL`,
      'ALTER TABLE audit_record DISABLE TRIGGER USER',
      'ALTER TABLE audit_record RENAME TO away',
      'DROP TABLE audit_record CASCADE',
      'DROP SCHEMA key_manager_audit CASCADE',
      'ALTER TABLE audit_record OWNER TO krater_key_manager',
      'CREATE OR REPLACE FUNCTION key_manager_audit.removable_audit(at timestamptz) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$',
      `INSERT INTO audit_record (at, action, outcome, target_type) VALUES ('2020-01-01', 'x', 'success', 'secret')`,
      'SET ROLE krater_key_manager_audit',
    ]) {
      await t.rejects(database.raw(statement), /permission denied|must be owner/, statement)
    }
    await linkRecords(database, key)
  })

  t.test('verification finds changes made by a superuser', async t => {
    const tampered = async (statement: string, fault: RegExp, noted?: { position: number; hash: string }) => {
      await superuser.raw('CREATE TABLE kept AS TABLE key_manager_audit.audit_record')
      await superuser.raw('ALTER TABLE key_manager_audit.audit_record DISABLE TRIGGER USER')
      await superuser.raw(statement)
      t.match((await verifyAudit(database, key, noted)).fault, fault, statement)
      await superuser.raw('TRUNCATE key_manager_audit.audit_record')
      await superuser.raw('INSERT INTO key_manager_audit.audit_record OVERRIDING SYSTEM VALUE TABLE kept')
      await superuser.raw('DROP TABLE kept')
      await superuser.raw('ALTER TABLE key_manager_audit.audit_record ENABLE TRIGGER USER')
      t.equal((await verifyAudit(database, key)).fault, null)
    }
    const { head } = await verifyAudit(database, key)
    await tampered(
      `UPDATE key_manager_audit.audit_record SET user_id = 'other' WHERE position = 3`,
      /^Record 3 .* was changed/,
    )
    await tampered('DELETE FROM key_manager_audit.audit_record WHERE position = 7', /^Record 7 of the chain is missing/)
    await tampered(`UPDATE key_manager_audit.audit_record SET hash = '\\x00' WHERE position = 9`, /^Record 9 /)
    await tampered('DELETE FROM key_manager_audit.audit_record WHERE position > 2000', /does not hold record/, head!)
    await tampered(
      `INSERT INTO key_manager_audit.audit_record (action, outcome, target_type, position, hash) VALUES ('x', 'success', 'secret', 0, '\\x00')`,
      /^Record 0 was inserted before the start of the chain, which is record 1\./,
    )
    t.match((await verifyAudit(database, randomBytes(32))).fault, /audit key is wrong/)
  })

  t.test('the head kept outside the database reveals a truncated or replaced chain', async t => {
    const directory = t.testdir({})
    const file = join(directory, 'head')
    const logged = recordLog()
    const follow = async () => {
      const linker = await startAuditLinker({ database, key, headFile: file, log: logged.log })
      await linker.stop()
    }
    const kept = () => {
      const head = readHead(file, key)
      return head === null || head === 'forged' ? null : head
    }
    await follow()
    t.match(kept(), { position: 2508 })
    t.equal((await verifyAudit(database, key, null, kept())).fault, null)
    await superuser.raw('CREATE TABLE kept AS TABLE key_manager_audit.audit_record')
    await superuser.raw('ALTER TABLE key_manager_audit.audit_record DISABLE TRIGGER USER')
    const before = readFileSync(file, 'utf8')
    for (const [statement, fault] of [
      [
        'DELETE FROM key_manager_audit.audit_record WHERE position > 2500',
        /head was record 2508 .*now ends with record 2500/,
      ],
      ['TRUNCATE key_manager_audit.audit_record', /head was record 2508 .*is now empty: all records were removed/],
    ] as const) {
      await superuser.raw(statement)
      t.equal((await verifyAudit(database, key)).fault, null, 'the database alone does not reveal it')
      t.match((await verifyAudit(database, key, null, kept())).fault, fault)
      await follow()
      t.match(logged.text(), fault, 'the worker logs the fault')
      // Restores a backup and appends to it.
      await superuser.raw('TRUNCATE key_manager_audit.audit_record')
      await superuser.raw(
        'INSERT INTO key_manager_audit.audit_record OVERRIDING SYSTEM VALUE SELECT * FROM kept WHERE position <= 2500',
      )
      for (let made = 0; made < 20; made++) await record('after')
      await follow()
      t.match((await verifyAudit(database, key, null, kept())).fault, /2508 .*holds another record there/)
      t.equal(readFileSync(file, 'utf8'), before, 'the stored head does not change')
      await superuser.raw('TRUNCATE key_manager_audit.audit_record')
      await superuser.raw('INSERT INTO key_manager_audit.audit_record OVERRIDING SYSTEM VALUE TABLE kept')
    }
    await superuser.raw('DROP TABLE kept')
    await superuser.raw('ALTER TABLE key_manager_audit.audit_record ENABLE TRIGGER USER')
    t.equal((await verifyAudit(database, key, null, kept())).fault, null)
    writeFileSync(file, before.replace('"position":2508', '"position":2507'))
    t.equal(readHead(file, key), 'forged')
    writeFileSync(file, 'nonsense')
    await follow()
    t.match(logged.text(), /The chain head in .* was changed/)
    rmSync(file)
    await follow()
    t.match(kept(), { position: 2508 })
    t.equal(statSync(file).mode & 0o777, 0o600)
  })

  t.test('export writes every field and filters by project and time', async t => {
    const lines = async (filter: Partial<Parameters<typeof exportAudit>[1]>) => {
      const found: Record<string, unknown>[] = []
      for await (const line of exportAudit(database, { from: null, until: null, project: null, ...filter })) {
        found.push(JSON.parse(line) as Record<string, unknown>)
      }
      return found
    }
    const all = await lines({})
    t.equal(all.length, 2508)
    t.match(all[0], {
      seq: 1,
      at: /^\d{4}-.*Z$/,
      action: 'secret.create',
      outcome: 'success',
      user_id: 'u',
      project_id: 'p',
      request_id: 'req-1',
      remote_address: '127.0.0.1',
      target_type: 'secret',
      target_id: 's0',
      detail: { status: 201, what: 'äöü "quoted"' },
      position: 1,
      hash: /^[0-9a-f]{64}$/,
    })
    t.equal((await lines({ project: 'p' })).length, 7)
    t.equal((await lines({ until: new Date(0) })).length, 0)
    t.equal((await lines({ from: new Date(0), project: 'p' })).length, 7)
  })
})

t.test('audit retention', async t => {
  const { database, superuser } = await ownDatabase(t)
  const retention = { days: 40, key }
  const insert = (count: number, daysAgo: number) =>
    superuser.raw(
      `INSERT INTO key_manager_audit.audit_record (at, action, outcome, target_type)
       SELECT now() - ? * interval '1 day', 'secret.create', 'success', 'secret' FROM generate_series(1, ?::integer)`,
      [daysAgo, count],
    )
  const link = async () => {
    while ((await linkRecords(database, key)) > 0);
  }
  const verify = (noted: { position: number; hash: string } | null = null) => verifyAudit(database, key, noted)
  const noteOf = async (position: number) => {
    const { hash } = await database('audit_record').where({ position }).first('hash')
    return { position, hash: hash.toString('hex') as string }
  }

  t.test('pruning removes the oldest records, keeps the rest verifiable and records itself', async t => {
    await insert(1500, 50)
    await insert(1, 10)
    await insert(2, 50)
    await link()
    await insert(1, 60)
    t.equal(await countPrunable(database, 60), 0)
    t.equal(await pruneAudit(database, { days: 60, key }), 0)
    t.same(await database('audit_anchor'), [])
    const [gone, last, kept] = [await noteOf(1499), await noteOf(1500), await noteOf(1501)]
    t.equal(await countPrunable(database, 40), 1500)
    // Two housekeepers prune, a worker links and an operator verifies, all at the same time.
    const [removed, , verdict] = await Promise.all([
      Promise.all([pruneAudit(database, retention), pruneAudit(database, retention)]),
      link(),
      verify(),
    ])
    t.equal(removed[0] + removed[1], 1500, 'each record is removed once; an old record behind a young one stays')
    t.equal(verdict.fault, null)
    await link()
    t.match(await verify(kept), { verified: 6, fault: null, removed: { records: 1500, before: /^2/ }, waiting: 0 })
    t.equal((await verify(last)).fault, null, 'the anchor’s record verifies')
    t.match((await verify({ ...last, hash: gone.hash })).fault, /does not hold record 1500/)
    t.match((await verify(gone)).fault, /Retention removed the noted record 1499.*Note a later record/)
    const records = await database('audit_record').where({ action: 'audit.prune' }).orderBy('seq')
    t.match(records, [{ detail: { records: 1000, position: 1000 } }, { detail: { records: 500, ...last } }])
    t.equal(await pruneAudit(database, retention), 0)
    const exported: string[] = []
    for await (const line of exportAudit(database, { from: null, until: null, project: null })) exported.push(line)
    t.equal(exported.length, 6)
    t.match(JSON.parse(exported[0] ?? ''), { position: 1501 })
  })

  t.test('the service cannot remove records ahead of the anchor or misplace the anchor', async t => {
    const anchor = await database('audit_anchor').first()
    const old = await database('audit_record').where({ position: 1502 }).first('position', 'hash', 'at')
    const young = await database('audit_record').where({ position: 1501 }).first('position', 'hash', 'at')
    t.match(old, { position: 1502 })
    for (const position of [1501, 1502]) {
      await t.rejects(database('audit_record').where({ position }).delete(), /only ever added/)
    }
    for (const place of [young, { ...old, hash: Buffer.alloc(32) }, { ...old, position: 1400 }, { position: 1499 }]) {
      await t.rejects(database('audit_anchor').update(place), /goes on from an old record only/)
    }
    await t.rejects(database('audit_anchor').delete(), /permission denied/)
    await t.rejects(superuser.raw('DELETE FROM key_manager_audit.audit_anchor'), /goes on from/)
    await t.rejects(database.raw('TRUNCATE audit_anchor'), /permission denied/)
    await t.rejects(superuser.raw('TRUNCATE key_manager_audit.audit_anchor'), /goes on from/)
    t.same(await database('audit_anchor').first(), anchor)
  })

  t.test('verification finds removals by others and a moved anchor, and pruning stops', async t => {
    await insert(5, 50)
    await link()
    /** Tampers as a superuser with triggers disabled, checks the fault, and restores the tables. */
    const harmed = async (statement: string, fault: RegExp, refused: RegExp | null = fault) => {
      const tables = ['audit_record', 'audit_anchor']
      for (const table of tables) {
        await superuser.raw('CREATE TABLE ?? AS TABLE key_manager_audit.??', [`kept_${table}`, table])
        await superuser.raw('ALTER TABLE key_manager_audit.?? DISABLE TRIGGER USER', [table])
      }
      await superuser.raw(statement)
      t.match((await verify()).fault, fault, statement)
      if (refused !== null) await t.rejects(pruneAudit(database, { days: 5, key }), refused, statement)
      for (const table of tables) {
        await superuser.raw('TRUNCATE key_manager_audit.??', [table])
        await superuser.raw('INSERT INTO key_manager_audit.?? OVERRIDING SYSTEM VALUE TABLE ??', [
          table,
          `kept_${table}`,
        ])
        await superuser.raw('DROP TABLE ??', [`kept_${table}`])
        await superuser.raw('ALTER TABLE key_manager_audit.?? ENABLE TRIGGER USER', [table])
      }
      t.equal((await verify()).fault, null)
    }
    await harmed(
      'DELETE FROM key_manager_audit.audit_record WHERE position < 1503',
      /^Record 1501 of the chain is missing/,
    )
    await harmed(
      'DELETE FROM key_manager_audit.audit_record WHERE position = 1502',
      /^Record 1502 of the chain is missing/,
    )
    await harmed('DELETE FROM key_manager_audit.audit_anchor', /^Record 1 of the chain is missing/)
    await harmed(
      `UPDATE key_manager_audit.audit_record SET user_id = 'x' WHERE position = 1501`,
      /^Record 1501 .* was changed/,
    )
    await harmed(
      `WITH target AS (SELECT r.* FROM key_manager_audit.audit_record r WHERE r.position = 1502),
            gone AS (DELETE FROM key_manager_audit.audit_record WHERE position <= 1502)
       UPDATE key_manager_audit.audit_anchor a SET position = t.position, hash = t.hash, at = t.at FROM target t`,
      /anchor.* was moved or changed/,
    )
    await harmed(`UPDATE key_manager_audit.audit_anchor SET cutoff = now()`, /anchor.* was moved or changed/)
    await harmed(
      `INSERT INTO key_manager_audit.audit_record (action, outcome, target_type, position, hash)
         SELECT action, outcome, target_type, 7, hash FROM key_manager_audit.audit_record WHERE position = 1501`,
      /^Record 7 was inserted before .* record 1501\./,
      null,
    )
    t.match((await verifyAudit(database, randomBytes(32))).fault, /or the audit key is wrong/)
  })

  t.test('after all linked records are removed, the chain continues from the anchor', async t => {
    await superuser.raw('ALTER TABLE key_manager_audit.audit_record DISABLE TRIGGER USER')
    await superuser.raw(`DELETE FROM key_manager_audit.audit_record WHERE position > 1500`)
    await superuser.raw('ALTER TABLE key_manager_audit.audit_record ENABLE TRIGGER USER')
    t.match(await verify(), { verified: 0, head: { position: 1500 }, fault: null })
    await insert(3, 50)
    await link()
    t.match(await verify(), { verified: 3, head: { position: 1503 }, fault: null })
    t.equal(await pruneAudit(database, retention), 3)
    t.match(await verify(), { verified: 0, waiting: 1, head: { position: 1503 }, removed: { records: 1503 } })
    await link()
    t.match(await verify(), { verified: 1, fault: null, head: { position: 1504 } })
  })
})

t.test('verification succeeds while retention prunes', async t => {
  const own = await createTestDatabase()
  const database = own.of('key_manager')
  const proxy = await startStatementProxy(own.urlOf('key_manager'))
  const through = connect({ url: proxy.url, applicationName: 'test', poolSize: 1 })
  t.teardown(async () => {
    await through.destroy()
    await proxy.stop()
    await own.drop()
  })
  const superuser = connect({ url: own.administratorUrl, applicationName: 'test', poolSize: 1 })
  t.teardown(() => superuser.destroy())
  await superuser.raw(
    `INSERT INTO key_manager_audit.audit_record (at, action, outcome, target_type)
     SELECT now() - n * interval '10 days', 'secret.create', 'success', 'secret' FROM unnest(ARRAY[6, 6, 5, 1]) n`,
  )
  await linkRecords(database, key)
  t.equal(await pruneAudit(database, { days: 55, key }), 2)
  let removed = 0
  proxy.watch(async ({ sql, at }) => {
    if (at === 'answered' && /FROM key_manager_audit.audit_anchor/.test(sql) && removed === 0) {
      removed = await pruneAudit(database, { days: 40, key })
    }
  })
  t.match(await verifyAudit(through, key), { verified: 2, fault: null, head: { position: 4 }, removed: { records: 2 } })
  t.equal(removed, 1)
})

t.test('same-named tables in the service’s schema do not shadow the audit log', async t => {
  const own = await createTestDatabase()
  t.teardown(own.drop)
  const database = own.of('key_manager')
  for (const table of ['audit_record', 'audit_anchor']) {
    await database.raw('CREATE TABLE key_manager.?? (LIKE key_manager_audit.??)', [table, table])
  }
  await recordAudit(database, actor, {
    action: 'secret.create',
    outcome: 'success',
    targetType: 'secret',
    targetId: 's',
  })
  await linkRecords(database, key)
  t.match(await verifyAudit(database, key), { verified: 1, fault: null })
  t.same(await database('key_manager.audit_record'), [])
})
