import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const root = join(import.meta.dirname, '../../..')
const MACHINES = ['controller', 'amphora-1', 'amphora-2', 'web-1', 'web-2', 'client']

t.test('vagrant accepts the Vagrantfile, without a provider, a box or a network', async t => {
  const home = t.testdir()
  const env = { ...process.env, HOME: home, VAGRANT_HOME: join(home, 'vagrant'), VAGRANT_CHECKPOINT_DISABLE: '1' }
  const words = ['validate', '--ignore-provider']
  const output = execFileSync('vagrant', words, { cwd: root, env, encoding: 'utf8', stdio: 'pipe', timeout: 60_000 })
  t.match(output, /validated successfully/)
  for (const name of MACHINES) t.match(output, `==> ${name}:`)
})

t.test('a host of the lab is enrolled when it is not yet, whatever the controller knows of its name', async t => {
  const folder = t.testdir()
  const [hosts, said] = [join(folder, 'hosts'), join(folder, 'said')]
  const krater = join(folder, 'krater')
  writeFileSync(krater, `#!/bin/sh\n[ "$2" != hosts ] || exec cat ${hosts}\necho "$@" >>${said}\n`)
  chmodSync(krater, 0o755)
  const program = join(root, 'images/lab/root/usr/local/sbin/lab-enroll')
  const enroll = (host: 'new' | 'known', listed: string): string[] => {
    writeFileSync(hosts, `name       state   address\namphora-11 free    192.168.56.31\n${listed}\n`)
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
  t.strictSame(enroll('new', ''), enrolls, 'a new one')
  t.strictSame(enroll('known', 'amphora-1  in use  192.168.56.21'), [], 'not one that carries an amphora')
  t.strictSame(enroll('known', 'amphora-1  free    192.168.56.21'), [], 'nor one that is free')
  t.strictSame(enroll('known', 'amphora-1  enrolling 192.168.56.21'), enrolls, 'one whose enrolment was interrupted')
  t.strictSame(enroll('known', ''), enrolls, 'one that the controller was not told of')
  t.strictSame(enroll('new', 'amphora-1  free    192.168.56.21'), [...forgets, ...enrolls], 'one in place of another')
})
