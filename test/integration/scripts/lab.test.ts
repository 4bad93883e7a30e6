import { execFileSync, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { execute } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { createTestDatabase } from '../../support/database/database.js'

const root = join(import.meta.dirname, '../../..')
const MACHINES = ['controller', 'amphora-1', 'amphora-2', 'web-1', 'web-2', 'client', 'image']

t.test('vagrant accepts the Vagrantfile, without a provider, a box or a network', async t => {
  const home = t.testdir()
  const env = { ...process.env, HOME: home, VAGRANT_HOME: join(home, 'vagrant'), VAGRANT_CHECKPOINT_DISABLE: '1' }
  const words = ['validate', '--ignore-provider']
  const output = execFileSync('vagrant', words, { cwd: root, env, encoding: 'utf8', stdio: 'pipe', timeout: 60_000 })
  t.match(output, /validated successfully/)
  for (const name of MACHINES) t.match(output, `==> ${name}:`)
})

t.test('the machine that builds images gets the checkout, and nothing that was built', async t => {
  const archive = join(t.testdir(), 'sources.tar')
  const script = `module Vagrant; def self.configure(*); end; end
load 'Vagrantfile'
File.open(ARGV[0], 'wb') { |file| Gem::Package::TarWriter.new(file) { |tar| ImageBuild.pack(tar) } }`
  execFileSync('ruby', ['-e', script, archive], { cwd: root, timeout: 60_000 })
  const lines = execFileSync('tar', ['--list', '--verbose', '--file', archive], { encoding: 'utf8' }).trim().split('\n')
  const names = lines.map(line => line.replace(/^.* \d\d:\d\d /, ''))
  for (const name of ['package-lock.json', 'controller/main.ts', 'images/initial/init', '.ci/run'])
    t.ok(names.includes(name), name)
  t.match(
    lines.find(line => line.endsWith(' images/builder/customize.sh')),
    /^-rwxr-xr-x/,
  )
  t.strictSame(
    names.filter(
      name => /^(node_modules|dist|\.git|\.vagrant|images\/out|[^/]*\.log$)/.test(name) && name !== '.gitignore',
    ),
    [],
  )
})

t.test('a host of the lab is enrolled when it is not yet, whatever the controller knows of its name', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  const rows = database.of('load_balancer')
  const folder = t.testdir({ state: {} })
  const [state, said] = [join(folder, 'state'), join(folder, 'said')]
  const settings = { database: { load_balancer: database.urlOf('load_balancer') } }
  writeFileSync(join(state, 'krater.yaml'), JSON.stringify(settings))
  const krater = join(folder, 'krater')
  // What the program asks is answered by Krater; what it orders is written down.
  const asks = `exec ${process.execPath} ${join(root, 'dist/krater.js')} --state-dir ${state} "$@"`
  writeFileSync(krater, `#!/bin/sh\n[ "$2" != hosts ] || ${asks}\necho "$@" >>${said}\n`)
  chmodSync(krater, 0o755)
  const list = (name: string, listed: string, address: string) =>
    execute(
      rows,
      sql`
        INSERT INTO enrolled_host
          (id, name, login, address, port, host_key, zone, physical_host, controller_address, interfaces, state, amphora_id)
        VALUES (${randomUUID()}::uuid, ${name}, 'root', ${address}, 22, ${Buffer.from(name)}, 'local', ${name},
          '192.168.56.10', '[]', ${listed}, ${listed === 'in use' ? randomUUID() : null}::uuid)`,
    )
  await list('amphora-11', 'free', '192.168.56.31')
  const program = join(root, 'images/lab/root/usr/local/sbin/lab-enroll')
  const enroll = async (host: 'new' | 'known', listed: string | null): Promise<string[]> => {
    await execute(rows, sql`DELETE FROM enrolled_host WHERE name = 'amphora-1'`)
    if (listed !== null) await list('amphora-1', listed, '192.168.56.21')
    writeFileSync(said, '')
    const { status, stderr } = spawnSync(program, ['amphora-1', '192.168.56.21', 'SHA256:x', host], {
      env: { ...process.env, PATH: `${folder}:${process.env.PATH}` },
      encoding: 'utf8',
    })
    t.equal(status, 0, stderr)
    return readFileSync(said, 'utf8').trim().split('\n').filter(Boolean)
  }
  const enrolls = ['amphora enroll root@192.168.56.21 --name amphora-1 --fingerprint SHA256:x --yes']
  const forgets = ['amphora retire amphora-1 --forget --yes']
  t.strictSame(await enroll('new', null), enrolls, 'a new one')
  t.strictSame(await enroll('known', 'in use'), [], 'not one that carries an amphora')
  t.strictSame(await enroll('known', 'free'), [], 'nor one that is free')
  t.strictSame(await enroll('known', 'enrolling'), enrolls, 'one whose enrolment was interrupted')
  t.strictSame(await enroll('known', null), enrolls, 'one that the controller was not told of')
  t.strictSame(await enroll('new', 'free'), [...forgets, ...enrolls], 'one in place of another')
})
