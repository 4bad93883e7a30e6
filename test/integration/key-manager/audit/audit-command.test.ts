import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { acceptAuditLog } from '../../../../controller/cli/commands/key-manager/audit/accept.js'
import { exportAuditLog } from '../../../../controller/cli/commands/key-manager/audit/export.js'
import { verifyAuditLog } from '../../../../controller/cli/commands/key-manager/audit/verify.js'
import { keyFiles, loadKeyManagerAuditKey } from '../../../../controller/cli/state-directory/keys.js'
import { configurationSchema } from '../../../../controller/config/schema.js'
import { writeHead } from '../../../../controller/key-manager/audit/head.js'
import { linkRecords } from '../../../../controller/key-manager/audit/linker.js'
import { createTestDatabase } from '../../../support/database/database.js'

const tests = await createTestDatabase()
t.teardown(tests.drop)
const database = tests.of('key_manager')
const directory = mkdtempSync(join(tmpdir(), 'krater-audit-command-'))
t.teardown(() => rmSync(directory, { recursive: true }))
const settings = { database: { key_manager: tests.urlOf('key_manager') } }
writeFileSync(join(directory, 'krater.yaml'), JSON.stringify(settings), { mode: 0o600 })
const files = keyFiles(configurationSchema.parse(settings), directory)
mkdirSync(join(directory, 'keys'), { mode: 0o700 })
writeFileSync(files.keyManagerAudit, '5a'.repeat(32), { mode: 0o600 })
const key = loadKeyManagerAuditKey(files)

const RECORDS = 3000
const insert = (count: number) =>
  database.raw(
    `INSERT INTO audit_record (action, outcome, project_id, target_type)
     SELECT 'secret.create', 'success', 'project-' || n % 3, 'secret' FROM generate_series(1, ?::integer) n`,
    [count],
  )
await insert(RECORDS)

const output = join(directory, 'audit.jsonl')
const exported = () => readFileSync(output, 'utf8').trimEnd().split('\n')

t.test('export writes all records to a file that only its owner can read', async t => {
  const warnings: Error[] = []
  const note = (warning: Error) => warnings.push(warning)
  process.on('warning', note)
  await exportAuditLog(directory, { output })
  // Node.js emits warnings in the next turn of the event loop.
  await new Promise(setImmediate)
  process.off('warning', note)
  t.same(warnings, [])
  const lines = exported()
  t.equal(lines.length, RECORDS)
  t.match(JSON.parse(lines.at(-1)!), { seq: RECORDS, action: 'secret.create' })
  t.equal(statSync(output).mode & 0o777, 0o600)
})

t.test('export filters by project and time', async t => {
  await exportAuditLog(directory, { output, project: 'project-1', from: '2020-01-01' })
  t.equal(exported().length, RECORDS / 3)
  await t.rejects(exportAuditLog(directory, { output, until: 'yesterday' }), /"yesterday" is not a time/)
})

t.test('an output file that cannot be written is named in the error', async t => {
  const nowhere = join(directory, 'nowhere', 'audit.jsonl')
  await t.rejects(exportAuditLog(directory, { output: nowhere }), {
    name: 'Error',
    message: new RegExp(`^Cannot write ${nowhere}: its directory does not exist \\(ENOENT\\)\\. Create it`),
  })
  await t.rejects(exportAuditLog(directory, { output: '/dev/full' }), {
    message: /^Cannot write \/dev\/full: the disk is full \(ENOSPC\)\. Free some space/,
  })
})

t.test('a reader that closes the pipe early is not an error', async t => {
  const program = join(import.meta.dirname, '../../../../dist/krater.js')
  const node = [process.execPath, program, '--state-dir', directory, 'key-manager', 'audit', 'export']
  const child = spawn('bash', ['-c', 'set -o pipefail; "$@" | head -n 2', 'bash', ...node], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', data => {
    stdout += data
  })
  child.stderr.on('data', data => {
    stderr += data
  })
  const [status] = await once(child, 'close')
  t.equal(stderr, '')
  t.equal(status, 0)
  t.equal(stdout.trimEnd().split('\n').length, 2)
})

t.test('verify exits with 1 when the chain does not match, and refuses a malformed position', async t => {
  while ((await linkRecords(database, key)) > 0);
  t.equal(await verifyAuditLog(directory, undefined), 0)
  const { position, hash } = await database('audit_record').where({ position: 10 }).first()
  const noted = `${position}:${Buffer.from(hash).toString('hex')}`
  t.equal(await verifyAuditLog(directory, noted), 0)
  t.equal(await verifyAuditLog(directory, noted.replace('10:', '11:')), 1)
  await t.rejects(verifyAuditLog(directory, 'nonsense'), /position:hash/)
})

t.test('verify compares the stored chain head until an operator accepts the current chain', async t => {
  const { position, hash, at } = await database('audit_record')
    .whereNotNull('position')
    .orderBy('position', 'desc')
    .first()
  const headFile = join(directory, 'key-manager-audit-head')
  writeHead(headFile, key, { position, hash, at: String(at) })
  t.equal(await verifyAuditLog(directory, undefined), 0)
  writeHead(headFile, key, { position: position + 100, hash, at: String(at) })
  t.equal(await verifyAuditLog(directory, undefined), 1, 'the end of the chain is missing')
  await acceptAuditLog(directory)
  t.equal(await verifyAuditLog(directory, undefined), 0)
  t.match(await database('audit_record').where({ action: 'audit.accept' }), [{ detail: { position: position + 100 } }])
  writeFileSync(headFile, '{}')
  t.equal(await verifyAuditLog(directory, undefined), 1)
})
