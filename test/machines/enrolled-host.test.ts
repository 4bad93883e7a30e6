import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import { type Databases, openDatabases } from '../support/faults/crash-inventory.js'
import { createHostRoom, type DebianHost } from '../support/worlds/debian-host.js'
import { until } from '../support/worlds/krater.js'
import { createLan } from '../support/worlds/lan.js'
import { type Balancer, startLanKrater } from '../support/worlds/lan-krater.js'

const RECORD = 'var/lib/krater-host'

t.test('hosts that run already', async t => {
  t.setTimeout(1_100_000)
  const lan = await createLan(t)
  const room = await createHostRoom(t, lan)
  const one = await room.add({ name: 'one', suite: 'bookworm', number: 31 })
  const two = await room.add({ name: 'two', suite: 'trixie', number: 32 })
  const world = await startLanKrater(t, { KRATER_COMPUTE_DRIVER: 'enrolled', KRATER_LOG_LEVEL: 'debug' }, lan)
  const { krater } = world
  const amphora = (...words: string[]) => krater.command('amphora', ...words)
  const wordsFor = (user: string, host: DebianHost, ...words: string[]) => [
    ...['enroll', `${user}@${host.address}`, '--identity', room.identity, ...words],
  ]
  const enroll = (user: string, host: DebianHost, ...words: string[]) => amphora(...wordsFor(user, host, ...words))
  let databases: Databases | null = null
  /** Of the row of a host; undefined without one. */
  const stateOf = async ({ name }: DebianHost): Promise<string | undefined> => {
    // An enrolment may restart the private PostgreSQL with Krater.
    databases ??= openDatabases(t, krater)
    const [row] = await databases.loadBalancer('enrolled_host').where({ name }).select('state')
    return row?.state
  }
  const isIn = (host: DebianHost, state: string) =>
    until(`${host.name} is ${state}`, async () => (await stateOf(host)) === state)
  /** Starts a command, and kills it as soon as it is time. @returns what it said if it ended before that */
  const killDuring = async (words: string[], isTime: () => boolean | Promise<boolean>) => {
    const child = krater.start('amphora', ...words)
    let said = ''
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', piece => (said += piece))
    const ended = once(child, 'exit')
    await until(`it is time to kill amphora ${words[0]}`, async () => (await isTime()) || child.exitCode !== null)
    const why = child.kill('SIGKILL') ? '' : said
    await ended
    return why
  }
  const before = new Map([
    [one, await one.inventory()],
    [two, await two.inventory()],
  ])
  const changesOn = async (host: DebianHost) => {
    const [then = [], now] = [before.get(host), await host.inventory()]
    return [
      ...now.filter(line => !then.includes(line)).map(line => `+ ${line}`),
      ...then.filter(line => !now.includes(line)).map(line => `- ${line}`),
    ]
  }

  await t.test('are refused for what speaks against them, and stay as they are', async t => {
    const other = `SHA256:${'A'.repeat(43)}`
    t.match(await enroll('root', one, '--yes', '--fingerprint', other), {
      status: 1,
      stderr: `shows the host key ${await one.fingerprint()}, not ${other}. Nothing was changed there.`,
    })
    t.match(await enroll('root', one), { status: 1, stderr: /Nobody is there to answer "Is that its key\?/ })
    t.match(await enroll('guest', one, '--yes'), {
      status: 1,
      stderr: /guest is not root on this host, and sudo does not work/,
    })
    await one.must(`sed --in-place s/^ID=debian/ID=other/ /usr/lib/os-release
      cp /bin/sleep /run/haproxy; /run/haproxy 600 >/dev/null 2>&1 & ip link add name br0 type bridge; ip link set eth1 master br0`)
    const { status, stderr } = await enroll('root', one, '--yes', '--interface', `lan=${one.mac}`)
    t.equal(status, 1)
    for (const why of [
      /Nothing was changed there/,
      /- It runs other 12, not Debian 12 or 13/,
      /- It runs haproxy itself/,
    ])
      t.match(stderr, why)
    await one.must('sed --in-place s/^ID=other/ID=debian/ /usr/lib/os-release; pkill -x haproxy; rm /run/haproxy')
    t.match(await enroll('root', one, '--yes', '--interface', `lan=${one.mac}`), {
      status: 1,
      stderr: /- Several interfaces of the host have the MAC address/,
    })
    await one.must('ip link set eth1 nomaster; ip link delete br0')
    t.match(await enroll('root', one, '--yes', '--interface', 'lan=02:00:00:00:00:01'), {
      status: 1,
      stderr: /- The host has no interface with the MAC address/,
    })
    t.same(await changesOn(one), [])
    t.match(await amphora('hosts'), { stdout: /^No host is enrolled/ })
  })

  await t.test('are enrolled, however often that is killed', async t => {
    const has = (path: string) => () => existsSync(one.path(path))
    const noted = (text: string) => () =>
      has(`${RECORD}/changes`)() && readFileSync(one.path(`${RECORD}/changes`), 'utf8').includes(text)
    const steps: [string, () => boolean][] = [
      ['has an owner', has(`${RECORD}/owner`)],
      ['is getting Node.js', has(`${RECORD}/incoming/node`)],
      ['is getting packages', noted('package haproxy')],
      ['has an account', noted('account krater')],
      ['has the agent', has('opt/krater/agent.mjs')],
      ['has a login for the controllers', noted('sshd')],
      ['has the service', has('etc/systemd/system/krater-amphora.service')],
    ]
    for (const [what, isTime] of steps) {
      t.equal(await killDuring(wordsFor('root', one, '--yes'), isTime), '', `killed when the host ${what}`)
      t.equal(await stateOf(one), 'enrolling')
    }
    const { status, stdout, stderr } = await enroll('root', one, '--yes')
    t.equal(status, 0, stderr)
    t.match(stdout, `shows the host key ${await one.fingerprint()} (ED25519)`)
    t.match(
      stdout,
      /Its interface eth1 \(02:00:00:19:00:1f\) leads to the network lan\.(.|\n)*one is enrolled: its agent answers and its heartbeats arrive/,
    )
    t.notMatch(await one.must('ps -eo args'), /bash -s|apt-get|dpkg/, 'nothing of the killed ones runs')
    t.match(await enroll('root', one, '--yes'), {
      status: 1,
      stderr: /one is enrolled already, and free\. Nothing was changed/,
    })
  })

  await t.test('are enrolled by an account with sudo, in a zone, and with a named interface', async t => {
    const found = await enroll(
      'operator',
      two,
      '--yes',
      '--zone',
      'rack-2',
      '--physical-host',
      'chassis-7',
      '--interface',
      `lan=${two.mac}`,
    )
    t.equal(found.status, 0, found.stderr)
    const { stdout } = await amphora('hosts')
    t.match(stdout, new RegExp(`^two +free +${two.address} +rack-2 +chassis-7 +lan by eth1 +-$`, 'm'))
  })

  const listeners = [world.listener('HTTP', 80, 8000), world.listener('UDP', 53, 8080)]
  const serves = async (balancer: Balancer) => {
    await until('HTTP is answered', async () =>
      world.servers.includes(await world.get(`http://${balancer.vip_address}/`)),
    )
    await until(
      'UDP is answered',
      async () => (await world.asker.ask(balancer.vip_address, { protocol: 'udp', port: 53 })) !== null,
    )
  }
  const hostOf = async (balancer: Balancer) => {
    const [found] = await world.amphorae(balancer)
    return found?.lb_network_ip === one.address ? one : two
  }

  await t.test('serve a tenant, and are wiped before the next one', async t => {
    const first = await world.create('first', listeners)
    await serves(first)
    const host = await hostOf(first)
    const [{ id = '' } = {}] = await world.amphorae(first)
    t.match((await amphora('hosts')).stdout, new RegExp(`^${host.name} +in use .* ${id}$`, 'm'))
    t.match(await amphora('retire', host.name, '--yes'), {
      status: 1,
      stderr: /carries the amphora .* Nothing was changed/,
    })
    const shown = await amphora('ssh', id, 'ip', '-o', 'address')
    t.match(shown.stdout, first.vip_address, shown.stderr)
    const marks = `${first.id}|${id}|${first.vip_address}`
    const search = `grep -rlE --exclude-dir log '${marks}' /etc /opt /root /home /run /tmp /var 2>/dev/null; true`
    t.not(await host.must(search), '', 'it has files of its tenant')
    await world.remove(first)
    krater.kill('worker')
    await isIn(host, 'free')
    t.equal(await host.must(search), '', 'it has none')
    t.equal(await host.must('pgrep -x "haproxy|keepalived"; true'), '')
    t.same(
      (await host.must('nsenter --net=/run/netns/krater-amphora ip -o address show scope global'))
        .trim()
        .split(/ +/)
        .slice(1, 4),
      ['mgmt0', 'inet', '169.254.77.2/30'],
    )
    t.equal(
      await host.must('nsenter --net=/run/netns/krater-amphora nft list tables'),
      'table inet krater_management\n',
    )
    const second = await world.create('second', listeners, { vip_address: first.vip_address })
    await serves(second)
    await world.remove(second)
    for (const one of before.keys()) await isIn(one, 'free')
  })

  await t.test('come back after a reboot, and after they were lost', async t => {
    const balancer = await world.create('kept', listeners)
    await serves(balancer)
    const host = await hostOf(balancer)
    const other = host === one ? two : one
    const [{ id = '' } = {}] = await world.amphorae(balancer)
    await host.reboot()
    await serves(balancer)
    t.match(await world.amphorae(balancer), [{ id, status: 'ALLOCATED' }], 'the same amphora')
    await host.powerOff()
    await until('the other serves', async () => (await hostOf(balancer)) === other)
    await world.applied(balancer)
    await serves(balancer)
    t.equal(await stateOf(host), 'wiping')
    await host.powerOn()
    await isIn(host, 'free')
    t.match(await world.amphorae(balancer), [{ lb_network_ip: other.address }])
    await world.remove(balancer)
    for (const one of before.keys()) await isIn(one, 'free')
  })

  await t.test('are retired, however often that is killed, and are as they were before', async t => {
    const lacks = (path: string) => () => !existsSync(one.path(path))
    const steps: [string, () => boolean | Promise<boolean>][] = [
      ['is taken out of use', async () => (await stateOf(one)) === 'retiring'],
      ['has lost its service', lacks('etc/systemd/system/krater-amphora.service')],
      ['has lost the agent', lacks('opt/krater/agent.mjs')],
      ['has lost keepalived', lacks('usr/sbin/keepalived')],
    ]
    for (const [what, isTime] of steps) {
      t.equal(await killDuring(['retire', 'one', '--yes'], isTime), '', `killed when the host ${what}`)
      t.equal(await stateOf(one), 'retiring')
    }
    for (const host of [one, two]) {
      const { status, stdout, stderr } = await amphora('retire', host.name, '--yes')
      t.equal(status, 0, stderr)
      t.equal(stdout, `${host.name} is retired: it is as it was before.\n`)
      await until('the kernel has checked that its addresses are its own', async () =>
        (await changesOn(host)).every(line => !line.includes(' tentative ')),
      )
      t.same(await changesOn(host), [])
    }
    t.match(await amphora('hosts'), { stdout: /^No host is enrolled/ })
  })
})
