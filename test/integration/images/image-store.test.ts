import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { importImage, listImages, removeImage } from '../../../controller/cli/commands/image/image-store.js'
import { describeFiles, differenceFrom, digestOfTree } from '../../../controller/compute/images/contents.js'
import { readManifest } from '../../../controller/compute/images/manifest.js'
import { lockFile } from '../../../controller/process/file-lock.js'
import { imageManifest } from '../../support/inputs/image-manifest.js'

/** An image that nothing can boot, with this text as its disk. */
async function buildImage(folder: string, disk: string): Promise<string> {
  const root = join(folder, 'rootfs')
  mkdirSync(join(root, 'usr'), { recursive: true })
  writeFileSync(join(root, 'usr/program'), disk)
  symlinkSync('/nowhere', join(root, 'link'))
  const texts = { 'disk.qcow2': disk, kernel: 'kernel', initrd: 'initrd', 'sbom.cdx.json': '{}' }
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(folder, name), text)
  const files = await describeFiles(folder, Object.keys(texts))
  const manifest = { id: files['disk.qcow2']?.sha256 ?? '', files, rootfs: digestOfTree(root) }
  writeFileSync(join(folder, 'manifest.json'), imageManifest(manifest))
  return folder
}

t.test('an operator keeps images in the store', async t => {
  const folder = t.testdir()
  const state = join(folder, 'state')
  const store = join(state, 'images')
  const one = await buildImage(join(folder, 'one'), 'first')
  const two = await buildImage(join(folder, 'two'), 'second')
  const tags = () => listImages(state).map(({ tag }) => tag)
  const diskOf = (tag: string) => readFileSync(join(store, tag, 'disk.qcow2'), 'utf8')

  t.strictSame(tags(), [], 'there is none at first')
  t.match(await importImage(state, one, 'amphora'), { isKnown: false, manifest: { suite: 'bookworm' } })
  t.match(await importImage(state, one, 'amphora'), { isKnown: true }, 'the same again changes nothing')
  await importImage(state, one, 'stable')
  t.strictSame(tags(), ['amphora', 'stable'])
  t.equal(readdirSync(store).filter(name => name.startsWith('.')).length, 1, 'two tags share one image')
  t.equal(readlinkSync(join(store, 'amphora/rootfs/link')), '/nowhere', 'links of its root are copied as links')

  await importImage(state, two, 'amphora')
  t.strictSame([diskOf('amphora'), diskOf('stable')], ['second', 'first'], 'a tag takes the newer image')

  // What a killed import leaves.
  mkdirSync(join(store, '.new'))
  const mounting = 'mount --bind "$0" "$1" && echo mounted && exec cat'
  const words = ['--mount', 'sh', '-c', mounting, join(store, 'stable/rootfs/usr'), join(folder, 'one/rootfs/usr')]
  const machine = spawn('unshare', words, { stdio: ['pipe', 'pipe', 'inherit'] })
  t.teardown(() => machine.kill('SIGKILL'))
  await once(machine.stdout, 'data')
  const used = readlinkSync(join(store, 'stable'))
  await removeImage(state, 'stable')
  t.strictSame(tags(), ['amphora'])
  t.ok(existsSync(join(store, used, 'rootfs/usr/program')), 'a machine keeps the image that it runs from')
  t.notOk(existsSync(join(store, '.new')), 'what a killed command left is gone')
  machine.stdin.end()
  await once(machine, 'exit')
  await importImage(state, two, 'amphora')
  t.notOk(existsSync(join(store, used)), 'once no machine runs from it, the image is gone')

  const packed = await buildImage(join(folder, 'packed'), 'third')
  execFileSync('tar', [
    '--create',
    '--directory',
    packed,
    '--remove-files',
    '--file',
    join(packed, 'rootfs.tar'),
    'rootfs',
  ])
  await importImage(state, packed, 'packed')
  const link = readlinkSync(join(store, 'packed/rootfs/link'))
  t.strictSame([diskOf('packed'), link], ['third', '/nowhere'], 'a root that travelled as an archive is unpacked')
  await removeImage(state, 'packed')
  writeFileSync(join(packed, 'rootfs.tar'), 'no archive')
  await t.rejects(importImage(state, packed, 'packed'), /Cannot unpack .*rootfs.tar/)

  await t.rejects(removeImage(state, 'stable'), /no image stable/)
  await t.rejects(importImage(state, folder, 'amphora'), /has no manifest.json.*npm run images/)
  writeFileSync(join(one, 'kernel'), 'another')
  await t.rejects(importImage(state, one, 'amphora'), /damaged: kernel is not what its manifest says/)
  writeFileSync(join(one, 'kernel'), 'kernel')
  writeFileSync(join(one, 'rootfs/usr/more'), '')
  await t.rejects(importImage(state, one, 'amphora'), /damaged: rootfs is not what its manifest says/)
  rmSync(join(one, 'kernel'))
  await t.rejects(importImage(state, one, 'amphora'), /not complete: kernel is missing.*npm run images/)
  writeFileSync(join(one, 'manifest.json'), '{"format": 2}')
  await t.rejects(importImage(state, one, 'amphora'), /none that this version can read\. Build the image again/)
  t.equal(diskOf('amphora'), 'second', 'a refused image changes nothing')
})

t.test('another import repairs a damaged image, for all its tags', async t => {
  const folder = t.testdir()
  const state = join(folder, 'state')
  const image = await buildImage(join(folder, 'image'), 'disk')
  const at = (tag: string, ...names: string[]) => join(state, 'images', tag, ...names)
  const copies = () => readdirSync(join(state, 'images')).filter(name => name.startsWith('.'))
  const { manifest } = await importImage(state, image, 'amphora')
  await importImage(state, image, 'stable')
  const damages: Readonly<Record<string, () => void>> = {
    'a missing kernel': () => rmSync(at('amphora', 'kernel')),
    'a disk that is cut short': () => writeFileSync(at('amphora', 'disk.qcow2'), 'dis'),
    'a changed disk of the same length': () => writeFileSync(at('amphora', 'disk.qcow2'), 'disc'),
    'a missing root file system': () => rmSync(at('amphora', 'rootfs'), { recursive: true }),
    'a root file system that is cut short': () => rmSync(at('amphora', 'rootfs/usr/program')),
    'a changed program': () => writeFileSync(at('amphora', 'rootfs/usr/program'), 'disc'),
    'a program that everybody may change': () => chmodSync(at('amphora', 'rootfs/usr/program'), 0o666),
    'a link to elsewhere': () => {
      rmSync(at('amphora', 'rootfs/link'))
      symlinkSync('/somewhere', at('amphora', 'rootfs/link'))
    },
    'an empty manifest': () => writeFileSync(at('amphora', 'manifest.json'), ''),
    'nothing behind the tags': () => rmSync(at('amphora', '..', copies()[0] ?? ''), { recursive: true }),
  }
  for (const [damage, bring] of Object.entries(damages)) {
    bring()
    t.match(await importImage(state, image, 'amphora'), { isKnown: false }, `${damage} is noticed`)
    for (const tag of ['amphora', 'stable'])
      t.equal(await differenceFrom(manifest, realpathSync(at(tag))), null, `after ${damage}, ${tag} is whole`)
    t.equal(copies().length, 1, 'and the damaged copy is gone')
  }
  t.match(await importImage(state, image, 'amphora'), { isKnown: true }, 'there is nothing left to repair')
})

t.test('commands that change the store take turns', async t => {
  const folder = t.testdir()
  const state = join(folder, 'state')
  const store = join(state, 'images')
  const one = await buildImage(join(folder, 'one'), 'first')
  const two = await buildImage(join(folder, 'two'), 'second')
  await importImage(state, one, 'amphora')
  const results = await Promise.all([
    ...[one, two, one, two].map((image, index) => importImage(state, image, `tag-${index % 3}`)),
    removeImage(state, 'amphora'),
  ])
  t.equal(results.length, 5)
  const tags = listImages(state).map(({ tag }) => tag)
  t.strictSame(tags, ['tag-0', 'tag-1', 'tag-2'])
  for (const tag of tags) {
    const manifest = readManifest(join(store, tag))
    t.equal(manifest && (await differenceFrom(manifest, join(store, tag))), null, `${tag} is whole`)
  }
})

t.test('a lock excludes other processes until its holder has ended', async t => {
  const folder = t.testdir({ place: {} })
  const place = join(folder, 'place')
  const own = await lockFile(place, 0)
  t.ok(own)
  t.equal(await lockFile(place, 0), null, 'this process, too, has it only once')
  const waiting = lockFile(place, 60)
  own?.release()
  const next = await waiting
  t.ok(next, 'whoever waits gets it')
  next?.release()
  const other = spawn('flock', [place, 'sh', '-c', 'echo locked && exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] })
  t.teardown(() => other.kill('SIGKILL'))
  await once(other.stdout, 'data')
  t.equal(await lockFile(place, 0), null)
  t.equal(await lockFile(place, 0.1), null, 'it waits no longer than it was told')
  other.stdin.end()
  await once(other, 'exit')
  const last = await lockFile(place, 0)
  t.ok(last)
  last?.release()
  await t.rejects(lockFile(join(folder, 'nothing'), 0), { code: 'ENOENT' })
})
