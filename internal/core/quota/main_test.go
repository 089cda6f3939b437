package quota

import (
	"os"
	"testing"

	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) { os.Exit(worldtest.Main(m)) }
