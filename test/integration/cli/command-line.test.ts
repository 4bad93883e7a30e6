import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import t from 'tap'
import { table } from '../../../controller/cli/terminal.js'
import { codeCacheOf, loadProgram } from '../../../controller/program.js'
import { createKrater } from '../../support/worlds/krater.js'

const run = promisify(execFile)

t.test('the command line explains itself', async t => {
  const krater = await createKrater(t)

  await t.test('help shows commands and examples', async t => {
    const { status, stdout } = await krater.command('--help')
    t.equal(status, 0)
    for (const word of [
      'up',
      'down',
      'doctor',
      'demo',
      'settings',
      'amphora',
      'db',
      'Examples:',
      'KRATER_NETWORK_DRIVER',
    ]) {
      t.match(stdout, word)
    }
    t.match((await krater.command('amphora', '--help')).stdout, 'support-bundle')
    t.match(await krater.command('--version'), { status: 0, stdout: /^\d+\.\d+\.\d+\n$/ })
  })

  await t.test('invalid arguments end with status 2 and a message', async t => {
    const cases: [string[], RegExp][] = [
      [['frobnicate'], /unknown command 'frobnicate'/],
      [['up', '--sideways'], /unknown option '--sideways'/],
      [['amphora', 'show'], /missing required argument 'id'/],
      [['api', '--only', 'identity,mail'], /There is no API "mail"/],
      [['amphora', 'logs', 'x', '--lines', '0'], /from 1 to 5000/],
      [['amphora', 'show', ''], /The value of id is empty/],
      [
        ['--state-dir', '', 'down', '--all', '--yes'],
        /'--state-dir <directory>' argument '' is invalid\. It is empty\./,
      ],
      [['amphora', 'support-bundle', 'x', '--output', ''], /The value of output is empty/],
      [['key-manager', 'rotate-project-keys', '--project', ''], /The value of project is empty/],
      [['key-manager', 'audit', 'export', '--from', 'yesterday'], /"yesterday" is not a time/],
    ]
    for (const [args, words] of cases) {
      const { status, stderr } = await krater.command(...args)
      t.equal(status, 2, args.join(' '))
      t.match(stderr, words)
      t.notMatch(stderr, /at .*\.js:/, 'no stack')
    }
  })

  await t.test('a misspelt environment variable stops a command, which names the right one', async t => {
    const env = { ...krater.environment, KRATER_COMPUTE_DRIVR: 'noop' }
    const { code, stderr } = await run(process.execPath, ['dist/krater.js', 'down', '--all', '--yes'], { env }).catch(
      error => error,
    )
    t.equal(code, 2)
    t.match(
      stderr,
      /^KRATER_COMPUTE_DRIVR is no setting \(did you mean KRATER_COMPUTE_DRIVER\?\)\. .*`krater settings`/,
    )
    const { stdout } = await run(process.execPath, ['dist/krater.js', 'settings'], { env })
    t.match(stdout, 'KRATER_COMPUTE_DRIVER', 'the list itself works')
  })

  await t.test('the settings show the values in effect and where they come from, but no secret', async t => {
    const directory = t.testdir()
    const file = join(directory, 'krater.yaml')
    const settings = () =>
      run(process.execPath, ['dist/krater.js', '--state-dir', directory, 'settings'], {
        env: { KRATER_REGION: 'North', KRATER_DATABASE_URL: 'postgres://root:hunter2@db/krater' },
      })
    writeFileSync(file, 'network: {port: 9697}\ndatabase: {network: "postgres://krater:hunter2@db/krater"}\n')
    const { stdout, stderr } = await settings()
    t.equal(stderr, '')
    t.match(stdout, `\nnetwork.port   9696\n  now: 9697 (from ${file})\n`)
    t.match(stdout, 'region   "RegionOne"\n  now: "North" (from KRATER_REGION)\n')
    t.match(stdout, `now: set, but secret (from ${file})`)
    t.match(stdout, 'now: set, but secret (from KRATER_DATABASE_URL)')
    t.notMatch(stdout, 'hunter2')
    t.equal(stdout.match(/ now: /g)?.length, 4)
    writeFileSync(file, 'network: {port: x}\n')
    const wrong = await settings()
    t.match(wrong.stderr, /^These are the defaults\. The values in effect are unknown: network\.port: "x" \(from /)
    t.match(wrong.stdout, '\nnetwork.port   9696\n')
    t.notMatch(wrong.stdout, ' now: ')
  })

  await t.test('output that cannot be written is a failure with one line', async t => {
    const full = spawn('sh', ['-c', `"${process.execPath}" dist/krater.js settings > /dev/full`], { stdio: 'pipe' })
    const [said, [status]] = await Promise.all([text(full.stderr), once(full, 'exit')])
    t.equal(status, 1)
    t.match(said, /^Cannot write: the disk is full \(ENOSPC\)\. Free some space .*\.\n$/)
  })

  await t.test('before the set-up each command says what to do first', async t => {
    const none = `There is no instance in ${krater.directory}; \`krater up\` makes one.\n`
    t.match((await krater.command('worker')).stderr, /is not set up yet\. Run `krater up`/)
    t.equal((await krater.command('api')).stderr.split('\n').at(-2), none.trim())
    t.match((await krater.command('down')).stdout, 'Nothing was running')
    t.equal((await krater.command('amphora', 'list')).stderr, none)
    const { stdout } = await krater.command('doctor')
    t.match(stdout, /none is running: `krater up` starts them/)
  })
})

t.test('a process that cannot be attached is refused with the reason', async t => {
  const krater = await createKrater(t)
  const attach = ['dist/krater.js', 'network', 'attach', 'private', 'web-1', '--pid']
  const refusal = async (...words: string[]) => {
    const [program = '', ...args] = [...words, process.execPath, ...attach, String(process.pid)]
    return (await run(program, args, { env: krater.environment }).catch(error => error)).stderr
  }
  t.match(await refusal('env'), /^Process \d+ runs in this machine's own network\./)
  // Then the process of the test has a right that the command lacks.
  t.match(
    await refusal('setpriv', '--bounding-set=-sys_ptrace'),
    /^Process \d+ cannot be attached: the kernel does not show its network, even to root \(EACCES\)/,
  )
  const ended = spawn('true')
  await once(ended, 'exit')
  t.match((await krater.command(...attach.slice(1), String(ended.pid))).stderr, /^There is no process \d+\./)
})

t.test('without root one line says what is needed', async t => {
  const krater = await createKrater(t)
  // Nobody may read the checkout wherever it lies, also below a home directory that is closed to others.
  const nobody = ['--reuid=65534', '--regid=65534', '--clear-groups']
  const mayRead = ['--inh-caps=+dac_read_search', '--ambient-caps=+dac_read_search']
  const options = { cwd: '/', env: krater.environment, timeout: 20_000 }
  for (const command of ['up', 'demo', 'doctor', 'down']) {
    const program = [process.execPath, join(process.cwd(), 'dist/krater.js'), command]
    const { code, stderr } = await run('setpriv', [...nobody, ...mayRead, ...program], options).catch(error => error)
    t.equal(code, 1, command)
    t.match(stderr, /needs root.*sudo/s)
    t.equal(stderr.trim().split('\n').length, 1)
  }
})

t.test('at the question of down --all, Ctrl-C and every answer but yes remove nothing, without a stack', async t => {
  const krater = await createKrater(t)
  writeFileSync(join(krater.directory, 'instance'), '0abcd\n')
  const cases: [string, number][] = [
    ['\x03', 130],
    ['\x04', 1],
    ['y\n', 1],
  ]
  for (const [keys, expected] of cases) {
    // script gives the command a terminal.
    const command = ['-qec', `"${process.execPath}" dist/krater.js down --all`, '/dev/null']
    const terminal = spawn('script', command, { env: krater.environment, stdio: 'pipe', timeout: 60_000 })
    let said = ''
    terminal.stdout.setEncoding('utf8').on('data', piece => {
      if (!said.includes('Type yes') && `${said}${piece}`.includes('Type yes to continue: ')) terminal.stdin.write(keys)
      said += piece
    })
    const [status] = await once(terminal, 'exit')
    t.equal(status, expected, JSON.stringify(keys))
    t.match(said, /Nothing was removed\. To remove everything, run the command again and type yes\.\s*$/)
    t.notMatch(said, /^ +at /m)
    t.ok(existsSync(join(krater.directory, 'instance')))
  }
})

t.test('text of tenants and amphorae cannot control the terminal', async t => {
  t.same(table([['a', '\u001b[2Jname\u009b31m\n', 'è 名']]), ['a  \\u{1b}[2Jname\\u{9b}31m\\u{a}  è 名'])
  const unseen = [
    '\u202e',
    '\u2066',
    '\u200b',
    '\u200d',
    '\ufeff',
    '\u2028',
    '\u2029',
    '\u00a0',
    '\u00ad',
    '\u{e0041}',
    '\u3164',
  ]
  for (const character of unseen) {
    const escaped = `\\u{${character.codePointAt(0)?.toString(16)}}`
    t.same(table([[`a${character}b`]]), [`a${escaped}b`], escaped)
  }
})

t.test('a closed pipe causes no error', async t => {
  const shell = spawn('sh', ['-c', `"${process.execPath}" dist/krater.js --help | head -n 1`])
  let errors = ''
  shell.stderr.setEncoding('utf8').on('data', chunk => {
    errors += chunk
  })
  await once(shell, 'exit')
  t.equal(errors, '')
})

t.test('the program starts with what V8 compiled of it at build time, or without', async t => {
  const built = readdirSync('dist').filter(name => /^program-\w+\.cjs$/.test(name))
  const accepted = built.filter(
    name => loadProgram(join(process.cwd(), 'dist', name)).script.cachedDataRejected === false,
  )
  t.match(accepted, [/./], 'V8 accepts the cache')

  const directory = t.testdir({})
  for (const name of ['krater.js', ...built]) copyFileSync(join('dist', name), join(directory, name))
  const version = () => run(process.execPath, [join(directory, 'krater.js'), '--version'])
  t.match(await version(), { stdout: /^\d+\.\d+\.\d+\n$/, stderr: '' }, 'without a cache')
  for (const name of built) writeFileSync(codeCacheOf(join(directory, name)), 'of another version')
  t.match(await version(), { stdout: /^\d+\.\d+\.\d+\n$/, stderr: '' }, 'with a cache that V8 refuses')
})
