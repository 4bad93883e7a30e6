import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { NOT_OFFERED, partNotOffered } from '../../controller/identity/not-offered.js'
import { MISSING } from '../../controller/network/api/routes/other-collections.js'

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))

t.test('the README names every part of identity and networking that is not offered', async t => {
  const readme = readFileSync(join(root, 'README.md'), 'utf8')
  const [, section = ''] = /### Identity and networking\n([^#]*)/.exec(readme) ?? []
  const text = section.replaceAll(/\s+/g, ' ')
  for (const name of Object.keys(NOT_OFFERED)) t.match(text, name)
  for (const { name } of Object.values(MISSING)) t.match(text, name)
})

t.test('a path belongs to the part that its beginning names', async t => {
  for (const [path, part] of [
    ['/v3/OS-TRUST/trusts/1/roles', 'trusts'],
    ['/v3/os-trust', 'trusts'],
    ['/v3/users/1/credentials/OS-EC2/2', 'EC2 and S3 tokens'],
    ['/v3/domains/1/config', 'domain configuration'],
    ['/v3/domains/1', undefined],
    ['/v3/domains/1/configs', undefined],
    ['/v3/policies-of-mine', undefined],
    ['/v3/constructor', undefined],
    ['/v2/policies', undefined],
    ['/', undefined],
  ] as const) {
    t.equal(partNotOffered(path), part, path)
  }
})
