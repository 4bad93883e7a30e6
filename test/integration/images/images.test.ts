import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { SEED_FILES, SEED_LABEL, type Seed, seedDisk } from '../../../amphora-agent/protocol/seed.js'
import { describeFiles } from '../../../controller/compute/images/contents.js'
import { readArguments, UsageError } from '../../../images/builder/arguments.js'
import { billOfMaterials, debianPart, lockedParts } from '../../../images/builder/bill-of-materials.js'
import { machineDescription } from '../../../images/builder/boxes/machine-description.js'
import { withContentId } from '../../../images/builder/boxes/virtualbox-box.js'
import { characterDevice, cpioArchive, directory, file, link } from '../../../images/builder/cpio.js'
import { fileTimes } from '../../../images/builder/file-times.js'
import { INPUTS_FILE, inputsDigest, isBuiltFrom } from '../../../images/builder/inputs.js'
import { modulesInOrder } from '../../../images/builder/kernel-modules.js'
import { copyKrater } from '../../../images/builder/lab/copy-krater.js'
import { prepareOutput, writeOutput } from '../../../images/builder/output.js'
import { AMPHORA, parsePackages } from '../../../images/builder/packages.js'
import { withPartition } from '../../../images/builder/partition-table.js'
import { makeBase } from '../../../images/builder/root-file-system.js'
import { imageManifest } from '../../support/inputs/image-manifest.js'

const MEBIBYTE = 1024 * 1024

t.test('tar reads from a seed disk what was put on it', async t => {
  const folder = t.testdir()
  const seedOf = (texts: readonly string[]) =>
    Object.fromEntries(SEED_FILES.map((name, index) => [name, texts[index]])) as Seed
  const texts = fc.array(fc.string({ unit: 'grapheme', maxLength: 1500 }), {
    minLength: SEED_FILES.length,
    maxLength: SEED_FILES.length,
  })
  fc.assert(
    fc.property(texts, values => {
      const seed = seedOf(values)
      const disk = join(folder, 'seed')
      writeFileSync(disk, seedDisk(seed))
      execFileSync('tar', ['--extract', '--no-same-owner', '--directory', folder, '--file', disk])
      return SEED_FILES.every(name => readFileSync(join(folder, name), 'utf8') === seed[name])
    }),
    { numRuns: 10 },
  )
  t.equal(statSync(join(folder, 'boot')).mode & 0o777, 0o600, 'only root reads the files')
  const disk = Buffer.from(seedDisk(seedOf(SEED_FILES.map(() => 'x'))))
  t.equal(disk.subarray(0, SEED_LABEL.length).toString(), SEED_LABEL, 'the machine recognises the disk by its start')
  t.equal(disk.length % 512, 0, 'a disk has whole sectors')
})

t.test('cpio reads the archive of an initial file system', async t => {
  const folder = t.testdir()
  const archive = cpioArchive([
    directory('bin'),
    file('bin/program', Buffer.from('one\n'), 0o755),
    file('empty', Buffer.alloc(0)),
    link('bin/other', 'program'),
    characterDevice('console', 5, 1),
  ])
  const listing = execFileSync('cpio', ['--list', '--verbose', '--numeric-uid-gid'], { input: archive, stdio: 'pipe' })
  const lines = listing.toString().trim().split('\n')
  const expected = [
    /^drwxr-xr-x .* bin$/,
    /^-rwxr-xr-x .* bin\/program$/,
    /^-rw-r--r-- .* empty$/,
    /^lrwxrwxrwx .* bin\/other -> program$/,
    /^crw------- .* 5, *1 .* console$/,
  ]
  t.match(lines, expected)
  execFileSync('cpio', ['--extract', '--quiet', 'bin', 'bin/*'], { input: archive, cwd: folder, stdio: 'pipe' })
  t.equal(readFileSync(join(folder, 'bin/other'), 'utf8'), 'one\n')
})

t.test('modules are loaded after those that they need, each once', async t => {
  const dependencies = `kernel/drivers/virtio/virtio_pci.ko.xz: kernel/drivers/virtio/virtio.ko.xz kernel/drivers/virtio/virtio_ring.ko.xz
kernel/drivers/virtio/virtio.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz
kernel/drivers/virtio/virtio_ring.ko.xz:
kernel/drivers/char/virtio-rng.ko.xz: kernel/drivers/virtio/virtio.ko.xz kernel/drivers/virtio/virtio_ring.ko.xz
`
  const builtIn = 'kernel/fs/ext4/ext4.ko\n'
  const names = modulesInOrder(dependencies, builtIn, ['ext4', 'virtio_pci', 'virtio_rng']).map(path =>
    path.replace(/.*\//, ''),
  )
  t.strictSame(names, ['virtio_ring.ko.xz', 'virtio.ko.xz', 'virtio_pci.ko.xz', 'virtio-rng.ko.xz'])
  t.throws(() => modulesInOrder(dependencies, builtIn, ['nothing']), /no module nothing/)
})

t.test('the first sector names one bootable partition, behind the program that boots', async t => {
  const program = Buffer.alloc(512, 0x90)
  const sector = Buffer.from(withPartition(program, { start: MEBIBYTE, bytes: 1023 * MEBIBYTE }, 0x12345678))
  t.equal(sector.length, 512)
  t.equal(sector.subarray(0, 440).compare(program.subarray(0, 440)), 0, 'the program is unchanged')
  t.equal(sector.readUInt32LE(440), 0x12345678, 'the disk has its signature')
  t.equal(sector[446], 0x80, 'the partition is active')
  t.equal(sector[450], 0x83, 'it is one of Linux')
  t.equal(sector.readUInt32LE(454), 2048, 'it starts at the sector 2048')
  t.equal(sector.readUInt32LE(458), 1023 * 2048)
  t.equal(
    sector.subarray(462, 510).some(byte => byte !== 0),
    false,
    'there is no other',
  )
  t.equal(sector.readUInt16LE(510), 0xaa55)
})

t.test('debugfs is told the times of files', async t => {
  const lines = fileTimes(['/usr/bin/[', '/etc/a file'], 5).split('\n')
  t.ok(lines.includes('sif "/usr/bin/[" ctime @5'))
  t.ok(lines.includes('sif "/etc/a file" atime @5'))
  t.ok(lines.includes('sif <2> mtime @5'), 'those of the root too')
  t.throws(() => fileTimes(['/etc/a"b'], 5), /does not take: \/etc\/a"b/)
})

t.test('packages are read as the archive describes them', async t => {
  const text = `Package: zlib1g
Source: zlib (1:1.2.13)
Version: 1:1.2.13.dfsg-1
Architecture: amd64
Description: compression
 Version: of no meaning here
SHA256: bb

Package: bash
Architecture: amd64
Version: 5.2
SHA256: aa
`
  t.strictSame(parsePackages(text), [
    { name: 'bash', version: '5.2', architecture: 'amd64', source: 'bash', sha256: 'aa' },
    { name: 'zlib1g', version: '1:1.2.13.dfsg-1', architecture: 'amd64', source: 'zlib', sha256: 'bb' },
  ])
  t.throws(() => parsePackages('Package: bash\nVersion: 1\n'), /not describe this package completely/)
})

/**
 * Prints the file, format and size of the disk, and what is not as the format (DSP0243) or VirtualBox wants it: the order
 * of sections and elements, references that lead nowhere, items without what VirtualBox reads of them.
 */
const READ_DESCRIPTION = `
import sys, json, xml.etree.ElementTree as E
ovf, schemas = 'http://schemas.dmtf.org/ovf/envelope/1', 'http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/'
O, R, V = ('{%s}' % space for space in (ovf, schemas + 'CIM_ResourceAllocationSettingData', schemas + 'CIM_VirtualSystemSettingData'))
root, faults = E.parse(sys.stdin).getroot(), []
def expect(what, is_right):
  if not is_right: faults.append(what)
names = lambda parent: [child.tag.replace(O, '') for child in parent]
get = lambda element, name: element.get(O + name)
expect('envelope', root.tag == O + 'Envelope' and get(root, 'version') == '1.0')
expect('sections', names(root) == ['References', 'DiskSection', 'NetworkSection', 'VirtualSystem'])
system = root.find(O + 'VirtualSystem')
expect('system', names(system) == ['Info', 'OperatingSystemSection', 'VirtualHardwareSection'])
hardware = system.find(O + 'VirtualHardwareSection')
for section in [root[1], root[2], system, system[1], hardware]: expect('Info of ' + section.tag, names(section)[0] == 'Info')
expect('hardware', names(hardware)[1] == 'System' and set(names(hardware)[2:]) == {'Item'})
expect('type', hardware.find(O + 'System').findtext(V + 'VirtualSystemType') == 'virtualbox-2.2')
expect('operating system', system[1].findtext(O + 'Description') == 'Debian_64' and get(system[1], 'id') == '96')
file, disk = root.find('.//' + O + 'File'), root.find('.//' + O + 'Disk')
expect('file of the disk', get(disk, 'fileRef') == get(file, 'id'))
networks = [get(network, 'name') for network in root.iter(O + 'Network')]
items = [{child.tag.replace(R, ''): child.text for child in item} for item in root.iter(O + 'Item')]
for item in root.iter(O + 'Item'): expect('order', [child.tag for child in item] == sorted(child.tag for child in item))
ids = [item['InstanceID'] for item in items]
expect('ids', len(set(ids)) == len(ids) and all(item.get('ElementName') for item in items))
of_type = lambda number: [item for item in items if item['ResourceType'] == str(number)]
expect('types', sorted(item['ResourceType'] for item in items) == ['10', '17', '3', '4', '5'])
expect('processors', of_type(3)[0]['VirtualQuantity'] == '1')
expect('memory', (of_type(4)[0]['VirtualQuantity'], of_type(4)[0]['AllocationUnits']) == ('256', 'MegaBytes'))
expect('controller', of_type(17)[0]['Parent'] == of_type(5)[0]['InstanceID'] and of_type(5)[0]['ResourceSubType'] == 'PIIX4')
expect('disk', of_type(17)[0]['HostResource'] == '/disk/' + get(disk, 'diskId') and of_type(17)[0]['AddressOnParent'] == '0')
expect('network', of_type(10)[0]['Connection'] in networks and of_type(10)[0]['ResourceSubType'] == 'virtio')
print(json.dumps({'faults': faults, 'name': get(system, 'id'), 'file': get(file, 'href'),
  'format': get(disk, 'format').split('#')[1], 'capacity': get(disk, 'capacity')}))`

t.test('the description of a machine for VirtualBox is what the format and VirtualBox ask for', async t => {
  const described = { processors: 1, memoryMebibytes: 256, disk: 'disk.vmdk', diskMebibytes: 1024 }
  const text = machineDescription({ ...described, name: 'a & "b"' })
  const read = (input: string) =>
    JSON.parse(execFileSync('python3', ['-c', READ_DESCRIPTION], { input, encoding: 'utf8' }))
  const disk = { file: 'disk.vmdk', format: 'streamOptimized', capacity: '1073741824' }
  t.strictSame(read(text), { faults: [], name: 'a & "b"', ...disk })
  const broken = text.replace('/disk/vmdisk1', '/disk/other').replace('ovf:name="NAT"', 'ovf:name="other"')
  t.strictSame(read(broken).faults, ['disk', 'network'], 'a reference that leads nowhere is found')
  const vmdk = Buffer.concat([
    Buffer.alloc(512),
    Buffer.from('# Disk DescriptorFile\nversion=1\nCID=1234abcd\nparentCID=ffffffff\n'),
  ])
  const changed = withContentId(vmdk)
  t.equal(changed.length, vmdk.length)
  t.match(changed.toString(), /\nCID=6b726174\nparentCID=ffffffff\n/, 'a disk has the same id each time')
  t.throws(() => withContentId(Buffer.alloc(512)), /without a description/)
})

t.test('the command line is read, and its faults are named', async t => {
  t.match(readArguments([]), { suite: 'bookworm', mirror: 'http://deb.debian.org/debian', fresh: false })
  t.match(readArguments(['--suite', 'trixie', '--fresh']), { suite: 'trixie', fresh: true })
  t.match(readArguments([]), { target: 'amphora', out: 'images/out' })
  t.match(readArguments(['lab']), { target: 'lab', out: 'images/out/boxes' })
  t.match(readArguments(['--help']), { help: /--security-mirror/ })
  const refused = (t: Test, words: string[], sentence: RegExp) =>
    t.throws(() => readArguments(words), { constructor: UsageError, message: sentence })
  refused(t, ['--suite', 'sid'], /no suite sid.*bookworm and trixie/)
  refused(t, ['--mirror', 'debian'], /--mirror needs an address/)
  refused(t, ['--mirror', 'http://x/ y'], /--mirror needs an address/)
  refused(t, ['--out', ''], /--out needs a directory/)
  refused(t, ['--suit', 'trixie'], /--suit/)
  refused(t, ['labs'], /one of amphora and lab, not labs/)
  refused(t, ['lab', 'amphora'], /not lab amphora/)
})

t.test('a build replaces what a build wrote, and nothing else', async t => {
  const folder = t.testdir({
    out: { rootfs: { file: 'mine' }, 'other.txt': 'mine' },
    'out.new-99999999': { a: '' },
    'outer.new-99999999': { of: 'another' },
    web: { 'manifest.json': '{"name": "A web application", "format": 1}' },
    file: '',
  })
  const [out, own] = [join(folder, 'out'), join(folder, `out.new-${process.pid}`)]
  const tools = { run: async (program: string, words: readonly string[]) => void execFileSync(program, words) }
  const results = (text: string) => async (work: string) => {
    t.equal(statSync(work).mode & 0o777, 0o700, 'nobody sees what is not complete')
    writeFileSync(join(work, 'disk'), text)
    writeFileSync(join(work, INPUTS_FILE), inputsDigest(text, []))
    const { rootfs: _none, ...manifest } = JSON.parse(imageManifest({ files: await describeFiles(work, ['disk']) }))
    writeFileSync(join(work, 'manifest.json'), JSON.stringify(manifest))
  }
  const write = (text: string) => writeOutput(out, tools, results(text))
  const found = () => ['disk', 'other.txt'].map(name => readFileSync(join(out, name), 'utf8'))
  const isBuilt = (text: string) => isBuiltFrom(out, inputsDigest(text, []))
  const refused = (path: string, names: string[], message: RegExp) =>
    t.throws(() => prepareOutput(path, names), { constructor: UsageError, message })
  refused(out, ['disk', 'rootfs'], /holds another rootfs/)
  refused(join(folder, 'web'), ['disk'], /holds another manifest\.json/)
  refused(join(folder, 'file'), ['disk'], /is no directory/)
  refused('/proc', ['disk'], /is mounted/)
  chmodSync(out, 0o1777)
  prepareOutput(out, ['disk'])
  t.strictSame(readdirSync(folder), ['file', 'out', 'outer.new-99999999', 'web'], 'what a killed build left is gone')
  t.equal(statSync(out).mode & 0o7777, 0o1777, 'a directory that was there keeps its mode')
  await write('one')
  t.strictSame(found(), ['one', 'mine'])
  t.ok(await isBuilt('one'))
  t.notOk(await isBuilt('two'), 'what was built from something else is built again')
  const failing = writeOutput(out, tools, async work => {
    await results('two')(work)
    throw new Error('interrupted')
  })
  await t.rejects(failing, /interrupted/)
  t.strictSame(found(), ['one', 'mine'], 'a build that fails changes nothing')
  t.notOk(existsSync(own))
  writeFileSync(join(out, 'disk'), 'onE')
  t.notOk(await isBuilt('one'), 'what was damaged is built again')
  rmSync(join(out, 'manifest.json'))
  prepareOutput(out, ['disk'])
  t.notOk(await isBuilt('one'), 'one that was killed at its end is not complete')
  await write('three')
  t.strictSame(found(), ['three', 'mine'])
  t.ok(await isBuilt('three'))
  t.strictSame(readdirSync(out).sort(), [INPUTS_FILE, 'disk', 'manifest.json', 'other.txt', 'rootfs'])
  const umask = process.umask(0o077)
  prepareOutput(join(folder, 'new'), ['disk'])
  process.umask(umask)
  t.equal(statSync(join(folder, 'new')).mode & 0o777, 0o755, 'everybody may read a new directory')
})

t.test('a program of a build ends at its limit, whatever it and its children do', async t => {
  const folder = t.testdir()
  const { runLogged } = await import(join(process.cwd(), 'scripts/progress.js'))
  const run = (script: string, options: object) =>
    runLogged('bash', ['-c', script], { logFile: join(folder, 'log'), seconds: 0.2, grace: 0.2, ...options })
  t.match(await run('exec sleep 60', { grace: 60 }), { code: 128 + 15, tail: /took longer than 0.2 s/ })
  const children = join(folder, 'children')
  const stubborn = `trap '' TERM; sleep 60 & echo $! >${children}; while :; do wait; done`
  const ended = await run(stubborn, {})
  process.kill(Number(readFileSync(children, 'utf8')), 'SIGKILL')
  t.match(ended, { code: 128 + 9 }, 'it is killed, though its child keeps its output open')
  const controller = new AbortController()
  const report = () => controller.abort()
  const interrupted = run("trap '' TERM; echo started; while :; do :; done", {
    seconds: 60,
    signal: controller.signal,
    report,
  })
  t.match(await interrupted, { code: 128 + 9 }, 'an interruption does the same')
})

t.test('a base has the records of its own packages, whenever a build is killed', async t => {
  const cache = t.testdir()
  const settings = readArguments([])
  if ('help' in settings) throw new Error('unexpected')
  const record = (version: string) => `Package: bash\nVersion: ${version}\nArchitecture: amd64\nSHA256: aa\n`
  /** Stands in for mmdebstrap: writes the archive and, by the hook, the records; nothing for null. */
  const base = (fresh: boolean, version: string, archive: string | null) => {
    const run = async (program: string, words: readonly string[]) => {
      if (program !== 'mmdebstrap') return
      const records = words.join(' ').match(/'([^']*\.records\.[^']*)'/)?.[1] ?? ''
      writeFileSync(records, record(version))
      const path = words.find(word => /^\/.*\.tar\./.test(word)) ?? ''
      if (archive !== null) writeFileSync(path, archive)
    }
    const tools = {
      run,
      say: () => undefined,
      step: <T>(_text: string, work: (report: () => void) => Promise<T>) => work(() => undefined),
    }
    const places = { cache, builder: join(process.cwd(), 'images/builder'), tools }
    return makeBase({ ...settings, fresh }, AMPHORA, places)
  }
  const first = await base(false, '1', 'first')
  t.strictSame([readFileSync(first.archive, 'utf8'), first.packages[0]?.version], ['first', '1'])
  t.match(await base(false, '2', 'second'), { packages: [{ version: '1' }] }, 'it is used again')
  await t.rejects(base(true, '3', null), { code: 'ENOENT' }, 'a build that ends between the records and the archive')
  const next = await base(false, '4', 'fourth')
  t.strictSame([readFileSync(next.archive, 'utf8'), next.packages[0]?.version], ['fourth', '4'])
})

t.test('a copied Krater runs without the checkout', async t => {
  const folder = t.testdir()
  const krater = join(folder, 'krater')
  copyKrater(process.cwd(), krater, ['ssh2', 'no-such-package'])
  const run = (...words: string[]) => execFileSync(process.execPath, [join(krater, 'dist/krater.js'), ...words])
  t.match(run('--version').toString(), /^\d+\.\d+/)
  t.match(run('--state-dir', join(folder, 'state'), 'settings').toString(), /compute\.driver/)
  const files = readdirSync(krater, { recursive: true, encoding: 'utf8' })
  for (const name of [
    'templates/haproxy.hbs',
    'images/amphora/init.sh',
    'controller/compute/namespace/machine/start.sh',
  ])
    t.ok(files.includes(name), `it has ${name}`)
  t.strictSame(
    files.filter(name => name.endsWith('.ts') && !name.includes('node_modules')),
    [],
    'it has no sources',
  )
  const program = readFileSync(join(krater, 'dist/krater.js'), 'utf8').match(/program-\w+/)?.[0] ?? ''
  const programs = files.filter(name => /^dist\/program-.*\.cjs$/.test(name))
  t.strictSame(programs, [`dist/${program}.cjs`], 'it has no programs of earlier builds')
})

t.test('a bill of materials names each part once, and the same parts give the same text', async t => {
  const lock = {
    packages: {
      agent: { dependencies: { one: '^1' } },
      'node_modules/one': { version: '1.2.3', dependencies: { '@scope/two': '^2' } },
      'node_modules/@scope/two': { version: '9.0.0' },
      'node_modules/one/node_modules/@scope/two': { version: '2.0.0', dependencies: { one: '^1' } },
    },
  }
  const bash = { name: 'bash', version: '5.2+b1', architecture: 'amd64', sha256: 'aa' }
  const parts = [...lockedParts(lock, 'agent'), debianPart(bash, 'trixie')]
  const text = billOfMaterials('image', parts, 0)
  t.equal(text, billOfMaterials('image', [...parts].reverse(), 0))
  const { components, ...head } = JSON.parse(text)
  t.match(head, { bomFormat: 'CycloneDX', specVersion: '1.5', metadata: { timestamp: '1970-01-01T00:00:00.000Z' } })
  t.match(head.serialNumber, /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/)
  t.strictSame(
    components.map(({ purl }: { purl: string }) => purl),
    ['pkg:deb/debian/bash@5.2%2Bb1?arch=amd64&distro=trixie', 'pkg:npm/%40scope/two@2.0.0', 'pkg:npm/one@1.2.3'],
  )
  t.match(components[0], { type: 'library', hashes: [{ alg: 'SHA-256', content: 'aa' }] })
  t.throws(() => lockedParts({ packages: { agent: { dependencies: { none: '1' } } } }, 'agent'), /does not have none/)
})
