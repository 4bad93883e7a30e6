import t from 'tap'
import { stringFields } from '../../golden/hostile.js'
import { tryHostileTexts } from '../../support/inputs/hostile-texts.js'

/** The long run of a property; unit/provider/rendering-writer.test.ts has the short one. */

for (const field of stringFields) {
  t.test(`${field.name}: hostile text is refused or changes no other word`, async t => {
    t.doesNotThrow(() => tryHostileTexts(field, 300))
  })
}
