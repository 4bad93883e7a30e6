import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { ProvisioningFault } from '../../../controller/provider/provider.js'
import { nastyText, type StringField } from '../../golden/hostile.js'
import { someFacts } from '../../golden/models.js'
import { parseConfiguration } from './haproxy-words.js'

/** As regular expressions, these need a second ACL. */
const LABORIOUS = [`/*'*`, '%{+Q}r%{+Q}r', '(a+)+(a+)+(a+)+$']

/** The configuration lines of a harmless value; a field has few such values. */
function createHarmlessShape({ harmless, treeWith }: StringField): (text: string) => string[] {
  const shapes = new Map<string, string[]>()
  return text => {
    const value = harmless(text)
    const shape = shapes.get(value) ?? shapeOf(renderText(treeWith(value)) ?? '')
    shapes.set(value, shape)
    return shape
  }
}

/**
 * Writes hostile texts into a field: each is refused, or changes no other word of the configuration.
 * @throws the shortest text found that does neither, or an error when even a harmless text is refused
 */
export function tryHostileTexts(field: StringField, numRuns: number): void {
  const harmlessShape = createHarmlessShape(field)
  if (harmlessShape('').length <= 30) throw new Error(`${field.name}: a harmless value is not rendered`)
  fc.assert(
    fc.property(nastyText(), text => {
      const rendered = renderText(field.treeWith(text))
      if (rendered !== null && !isDeepStrictEqual(shapeOf(rendered), harmlessShape(text))) throw new Error(rendered)
    }),
    { numRuns, examples: LABORIOUS.map(text => [text]) },
  )
}

/** First word and number of words of each line. */
const shapeOf = (text: string) => parseConfiguration(text).map(words => `${words[0]} ${words.length}`)

/** HAProxy's configuration of a tree; null when the writer refuses it. */
export function renderText(tree: LoadBalancerTree): string | null {
  try {
    return renderDesired(tree, someFacts()).haproxy?.text ?? ''
  } catch (error) {
    if (error instanceof ProvisioningFault && error.code === 'configuration-refused') return null
    throw error
  }
}
